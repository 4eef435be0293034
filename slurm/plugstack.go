package slurm

import "path/filepath"

// Plugstack is the path and the text of the plugstack.conf beside the slurm.conf that is in use;
// both are empty where none can be read. PlugStackConfig, which may name another, is not looked at.
func Plugstack(lookup func(string) (string, bool)) (path, text string) {
	for _, conf := range confFiles(lookup) {
		path := filepath.Join(filepath.Dir(conf), "plugstack.conf")
		if b, err := ReadFile(path); err == nil {
			return path, string(b)
		}
	}
	return "", ""
}

// TaskProlog is the path and the text of the script that slurm.conf has for it; both are empty
// where there is none that can be read.
func TaskProlog(lookup func(string) (string, bool)) (path, text string) {
	for _, name := range confFiles(lookup) {
		conf, err := readConf(name, ReadFile)
		if err != nil {
			continue
		}
		if path, ok := conf.Get("taskprolog"); ok && filepath.IsAbs(path) {
			b, _ := ReadFile(path)
			return path, string(b)
		}
		return "", ""
	}
	return "", ""
}

// confFiles are the places of the slurm.conf that is in use.
func confFiles(lookup func(string) (string, bool)) []string {
	if conf, ok := lookup("SLURM_CONF"); ok && conf != "" {
		return []string{conf}
	}
	return confPaths
}
