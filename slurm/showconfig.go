package slurm

import (
	"errors"
	"strings"
)

// errShowConfig says that a text is not what scontrol prints.
var errShowConfig = errors.New("not the output of scontrol show config")

// ParseShowConfig reads what "scontrol show config" prints, "Name = Value" a
// line, the block of cgroup.conf included. Names become lower case; a value of
// "(null)" or "N/A" is empty.
func ParseShowConfig(b []byte) (map[string]string, error) {
	values := make(map[string]string)
	for line := range strings.Lines(string(b)) {
		name, value, ok := strings.Cut(line, "=")
		name = strings.TrimSpace(name)
		if !ok || name == "" || strings.ContainsAny(name, " \t") {
			continue
		}
		value = strings.TrimSpace(value)
		if value == "(null)" || value == "N/A" {
			value = ""
		}
		values[strings.ToLower(name)] = value
	}
	if _, ok := values[keyGather]; !ok {
		return nil, errShowConfig
	}
	return values, nil
}
