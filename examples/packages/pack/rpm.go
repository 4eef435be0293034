package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/rpmpack"
)

// rpmArch are RPM's names for architectures.
var rpmArch = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// packed returns the RPM of what is below the root; place says where a file goes, "" for
// nowhere.
func packed(r release, arch string, place func(file) string) (*rpmpack.RPM, error) {
	rpm, err := rpmpack.NewRPM(rpmpack.RPMMetaData{
		Name: r.control["Package"], Version: r.version, Release: "1", Arch: arch, Epoch: rpmpack.NoEpoch,
		Summary: r.control["Summary"], Description: strings.TrimSpace(r.control["Description"]),
		URL: r.control["Homepage"], Packager: r.control["Maintainer"], Licence: licence,
		BuildHost: "localhost", BuildTime: r.time, Compressor: "zstd",
	})
	if err != nil {
		return nil, err
	}
	files, err := tree(r.root)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		to := rpmpack.RPMFile{Name: place(f), Body: f.body, Mode: uint(f.mode.Perm()), Owner: "root", Group: "root", MTime: uint32(r.time.Unix())}
		switch name := filepath.Base(f.path); {
		case to.Name == "":
			continue
		case f.mode.IsDir():
			to.Mode |= 0o040000
		case f.link != "":
			to.Mode, to.Body = 0o120777, []byte(f.link)
		case name == "copyright":
			to.Type = rpmpack.LicenceFile
		case strings.HasSuffix(name, ".spec"):
			to.Type = rpmpack.SpecFile
		case strings.HasPrefix(f.path, "usr/share/doc/") || strings.HasPrefix(f.path, "usr/share/man/"):
			to.Type = rpmpack.DocFile
		}
		rpm.AddFile(to)
	}
	return rpm, nil
}

// own are the directories that may be no other package's; the rest are the system's.
var own = []string{"usr/share/doc/rsswarden", "usr/share/bash-completion", "usr/share/fish", "usr/share/zsh"}

// binaryRPM writes the RPM of the programs.
func binaryRPM(r release, out io.Writer) error {
	arch, ok := rpmArch[r.arch]
	if !ok {
		return fmt.Errorf("cannot pack for %q", r.arch)
	}
	rpm, err := packed(r, arch, func(f file) string {
		if f.mode.IsDir() && !slices.ContainsFunc(own, func(o string) bool { return strings.HasPrefix(f.path, o) }) {
			return ""
		}
		return "/" + f.path
	})
	if err != nil {
		return err
	}
	for name, add := range map[string]func(string){"prerm": rpm.AddPreun, "postrm": rpm.AddPostun} {
		text, err := os.ReadFile(filepath.Join(r.scripts, name))
		if err != nil {
			return err
		}
		add(string(text))
	}
	return rpm.Write(out)
}

// Where a lead says which kind of RPM follows, how long it is, and numbers of tags of
// https://github.com/rpm-software-management/rpm/blob/master/include/rpm/rpmtag.h.
const (
	leadType, leadSize            = 6, 96
	tagSourceRPM, tagSourceMarker = 1044, 1106
)

// sourceRPM writes an RPM of a spec and its sources, which `rpmbuild --rebuild` takes.
func sourceRPM(r release, out io.Writer) error {
	rpm, err := packed(r, "noarch", func(f file) string {
		if !f.mode.IsRegular() {
			return ""
		}
		return filepath.Base(f.path)
	})
	if err != nil {
		return err
	}
	for _, what := range []string{"gcc", "/usr/include/slurm/spank.h"} { // for dnf builddep
		if err := rpm.Requires.Set(what); err != nil {
			return err
		}
	}
	// rpmpack writes binary packages alone. What tells them apart is the kind in the lead, and
	// that a source package has the tag sourcepackage in the place of sourcerpm.
	rpm.AddCustomTag(tagSourceRPM, rpmpack.EntryInt32([]int32{1}))
	var b bytes.Buffer
	if err := rpm.Write(&b); err != nil {
		return err
	}
	whole := b.Bytes()
	binary.BigEndian.PutUint16(whole[leadType:], 1)
	header, err := headerOf(whole)
	if err != nil {
		return err
	}
	before := sha256.Sum256(header)
	for i := headerStart; i+entrySize <= len(header); i += entrySize {
		if binary.BigEndian.Uint32(header[i:]) == tagSourceRPM {
			binary.BigEndian.PutUint32(header[i:], tagSourceMarker)
			after := sha256.Sum256(header)
			whole = bytes.Replace(whole, fmt.Appendf(nil, "%x", before), fmt.Appendf(nil, "%x", after), 1)
			_, err = out.Write(whole)
			return err
		}
	}
	return errors.New("cannot pack a source RPM: no tag sourcerpm")
}

// A header structure is magic, two numbers (entries, bytes of data), entries and data.
const headerStart, entrySize = 16, 16

// headerOf returns the main header of an RPM, which follows that of the signature.
func headerOf(whole []byte) ([]byte, error) {
	length := func(at int) int {
		if at+headerStart > len(whole) || !bytes.HasPrefix(whole[at:], []byte{0x8e, 0xad, 0xe8, 1}) {
			return -1
		}
		return headerStart + entrySize*int(binary.BigEndian.Uint32(whole[at+8:])) + int(binary.BigEndian.Uint32(whole[at+12:]))
	}
	signature := length(leadSize)
	at := leadSize + (signature+7)/8*8
	if n := length(at); signature > 0 && n > 0 && at+n <= len(whole) {
		return whole[at : at+n], nil
	}
	return nil, fmt.Errorf("cannot find the header of an RPM: %w", fs.ErrInvalid)
}
