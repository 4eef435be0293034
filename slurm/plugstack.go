package slurm

import "path/filepath"

// Plugstack is the path and the text of the plugstack.conf beside the slurm.conf that is in use;
// both are empty where none can be read. PlugStackConfig, which may name another, is not looked at.
func Plugstack(lookup func(string) (string, bool)) (path, text string) {
	files := confPaths
	if conf, ok := lookup("SLURM_CONF"); ok && conf != "" {
		files = []string{conf}
	}
	for _, conf := range files {
		path := filepath.Join(filepath.Dir(conf), "plugstack.conf")
		if b, err := ReadFile(path); err == nil {
			return path, string(b)
		}
	}
	return "", ""
}
