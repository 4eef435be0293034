package main

import (
	"archive/zip"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
)

// wheelTags are the platforms of pip on which a static program of an architecture runs:
// the oldest C library that pip still knows stands for any.
var wheelTags = map[string][]string{
	"amd64": {"py3-none-manylinux_2_17_x86_64", "py3-none-manylinux2014_x86_64"},
	"arm64": {"py3-none-manylinux_2_17_aarch64", "py3-none-manylinux2014_aarch64"},
}

// wheel writes what pip installs: what is below the root, and the files that PEP 427 asks for.
func wheel(r release, out io.Writer) error {
	tags, ok := wheelTags[r.arch]
	if !ok {
		return fmt.Errorf("cannot pack for %q", r.arch)
	}
	files, err := tree(r.root)
	if err != nil {
		return err
	}
	name := r.control["Package"]
	info := name + "-" + r.version + ".dist-info/"
	add := func(path, text string) {
		files = append(files, file{path: info + path, mode: 0o644, body: []byte(text)})
	}
	add("METADATA", fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\nSummary: %s\nProject-URL: Homepage, %s\nLicense: %s\nRequires-Python: >=3.8\n\n%s",
		name, r.version, r.control["Summary"], r.control["Homepage"], licence, r.control["Description"]))
	add("WHEEL", "Wheel-Version: 1.0\nGenerator: "+name+"\nRoot-Is-Purelib: false\nTag: "+strings.Join(tags, "\nTag: ")+"\n")
	var record strings.Builder
	for _, f := range files {
		if f.mode.IsRegular() {
			sum := sha256.Sum256(f.body)
			fmt.Fprintf(&record, "%s,sha256=%s,%d\n", f.path, base64.RawURLEncoding.EncodeToString(sum[:]), len(f.body))
		}
	}
	add("RECORD", record.String()+info+"RECORD,,\n")

	z := zip.NewWriter(out)
	for _, f := range files {
		switch {
		case f.mode.IsDir():
			continue
		case f.link != "":
			return fmt.Errorf("cannot pack %s: a wheel holds no links", f.path)
		}
		h := &zip.FileHeader{Name: f.path, Method: zip.Deflate, Modified: r.time}
		h.SetMode(f.mode)
		w, err := z.CreateHeader(h)
		if err == nil {
			_, err = w.Write(f.body)
		}
		if err != nil {
			return err
		}
	}
	return z.Close()
}
