package adminline

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

func pack(json string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write([]byte(json))
	z.Close()
	return prefix + base64.StdEncoding.EncodeToString(b.Bytes())
}

func TestLine(t *testing.T) {
	cpu := 12.5
	l := Line{
		Nodes:   map[string]Node{"sa": {Limit: 300 << 20, Peak: 171 << 20, CPUs: 2, CPUSeconds: &cpu}, "sb": {Peak: 1}},
		Seconds: 600,
		Own:     &Own{V: 1, Nodes: map[string]OwnNode{"sa": {At: 1764190000, OOMKills: 2, Cache: 5}}},
	}
	s, err := Encode(l)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Decode(s + "\n"); err != nil || !reflect.DeepEqual(got, l) {
		t.Errorf("got %+v, %v, want %+v", got, err, l)
	}
	if again, _ := Encode(l); again != s {
		t.Error("equal values have two lines")
	}
}

// A line as jobstats writes it, with keys that are not read here.
func TestLineOfJobstats(t *testing.T) {
	got, err := Decode(pack(`{"nodes":{"della-l08g2":{"total_memory":33554432000,"used_memory":4508753920,"total_time":1237.9,"cpus":8,` +
		`"gpu_total_memory":{"0":85899345920},"gpu_used_memory":{"0":1},"gpu_utilization":{"0":96.2}}},"total_time":172,"gpus":1}`))
	n := got.Nodes["della-l08g2"]
	if err != nil || got.Own != nil || got.Seconds != 172 || got.GPUs != 1 || n.Limit != 33554432000 || n.Peak != 4508753920 || n.CPUs != 8 || n.CPUSeconds == nil || *n.CPUSeconds != 1237.9 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestNoLine(t *testing.T) {
	for _, s := range []string{"JS1:Short", " JS1:None\n"} {
		if _, err := Decode(s); !errors.Is(err, ErrEmpty) {
			t.Errorf("%q: %v", s, err)
		}
	}
	whole := pack(`{"nodes":{},"total_time":1,"gpus":0}`)
	for _, s := range []string{"", "hello", "JS2:x", "JS1:", strings.ToLower(whole), whole[:len(whole)-8], pack("[]"), pack(`{"nodes":7}`), pack(strings.Repeat(" ", maxJSON) + "{}")} {
		if got, err := Decode(s); !errors.Is(err, ErrOther) || got.Nodes != nil {
			t.Errorf("%.40q: %+v, %v", s, got, err)
		}
	}
}

// A job of some thousand nodes fits, and one that does not is no line that is cut.
func TestManyNodes(t *testing.T) {
	l := Line{Nodes: map[string]Node{}, Own: &Own{V: 1, Nodes: map[string]OwnNode{}}}
	random := rand.New(rand.NewPCG(1, 2))
	for n := 0; ; n++ {
		name, cpu := fmt.Sprintf("node%05d", n), random.Float64()*1e6
		l.Nodes[name] = Node{Limit: 200 << 30, Peak: random.Uint64N(200 << 30), CPUs: 96, CPUSeconds: &cpu}
		l.Own.Nodes[name] = OwnNode{At: 1764190000 + random.Int64N(600), Cache: random.Uint64N(200 << 30)}
		if n%100 != 0 {
			continue
		}
		if s, err := Encode(l); err != nil {
			if n <= 500 {
				t.Errorf("%d nodes: %v", n, err)
			}
			return
		} else if _, err := Decode(s); err != nil {
			t.Fatalf("%d nodes: %v", n, err)
		}
	}
}
