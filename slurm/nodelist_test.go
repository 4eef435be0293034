package slurm

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestExpandNodes(t *testing.T) {
	for list, want := range map[string]string{
		"":                      "",
		"vm":                    "vm",
		"n[1-2]":                "n1 n2",
		"n[1-2,05-07],login":    "n1 n2 n05 n06 n07 login",
		"n[098-101]":            "n098 n099 n100 n101",
		"rack[1-2]n[1,3]x":      "rack1n1x rack1n3x rack2n1x rack2n3x",
		"gpu-a-3,gpu-b[7]":      "gpu-a-3 gpu-b7",
		"n[2-1]":                "error",
		"n[1":                   "error",
		"n1]":                   "error",
		"n[a-b]":                "error",
		"n[]":                   "error",
		"n1,":                   "error",
		",n1":                   "error",
		"n 1":                   "error",
		"n[0-9999999]":          "error",
		"n[1-999]m[1-999]":      "error",
		"n[1-70000],m[1-70000]": "error",
	} {
		got, err := ExpandNodes(list)
		text := strings.Join(got, " ")
		if err != nil {
			if text = "error"; !errors.Is(err, errNodeList) {
				t.Errorf("%q: %v", list, err)
			}
		}
		if text != want {
			t.Errorf("%q is %q, want %q", list, text, want)
		}
	}
}

// TestJobNodes: the answers are those of 22.05 on two nodes.
func TestJobNodes(t *testing.T) {
	const shown = "JobId=7 JobName=a NodeList=x UserId=ann(1000) GroupId=ann(1000) MCS_label=N/A JobState=RUNNING ReqNodeList=(null) ExcNodeList=n9 NodeList=n[1-2] BatchHost=n1\n"
	for _, test := range []struct{ name, sacct, scontrol, job, want string }{
		{"sacct", "7|7|n[1-2]\n", "", "7", "n1 n2"},
		{"requeued: the last time counts", "7|7|n1\n7|7|n[3-4]\n", "", "7", "n3 n4"},
		{"a task of an array", "8|7_1|n1\n9|7_2|n2\n", "", "7_2", "n2"},
		{"not started, so scontrol", "7|7|None assigned\n", shown, "7", "n1 n2"},
		{"no accounting", "", shown, "7", "n1 n2"},
		{"unknown", "", "", "7", "error"},
		{"an option", "", "", "-h", "error"},
	} {
		names, err := JobNodes(t.Context(), func(_ context.Context, name string, args ...string) ([]byte, error) {
			if !slices.Contains(args, test.job) {
				t.Errorf("%s: %s was asked %q", test.name, name, args)
			}
			out := map[string]string{"sacct": test.sacct, "scontrol": test.scontrol}[name]
			if out == "" {
				return nil, errors.New("not there")
			}
			return []byte(out), nil
		}, test.job)
		got := strings.Join(names, " ")
		if err != nil {
			got = "error"
		}
		if got != test.want {
			t.Errorf("%s: %q, %v, want %q", test.name, got, err, test.want)
		}
	}
}

func FuzzExpandNodes(f *testing.F) {
	for _, list := range []string{"n[1-2,05-07],login", "rack[1-2]n[1,3]x", "n[", "n[0-99999]", "a[1][2][3]"} {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, list string) {
		names, err := ExpandNodes(list)
		if err != nil {
			return
		}
		if len(names) > maxNodes {
			t.Fatalf("%d names", len(names))
		}
		for _, name := range names {
			if name == "" || strings.ContainsAny(name, "[],") {
				t.Fatalf("%q gives the name %q", list, name)
			}
		}
	})
}
