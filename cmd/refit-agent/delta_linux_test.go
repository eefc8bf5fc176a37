package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/refit-dev/refit/internal/agent/bundlestore"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundledelta"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

// The program gives the bytes of a delta as they are: its other output is made safe for terminals.
func TestReadDeltaGivesBytes(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to start a process of another user")
	}
	dir := t.TempDir()
	var files []*bundlereader.File
	for _, version := range []string{"1.0.0", "1.1.0"} {
		s := bundletest.Tiny()
		s.Version = version
		path := filepath.Join(dir, version)
		if err := os.WriteFile(path, bundletest.Bytes(t, s, bundletest.Key(1)), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := bundlereader.OpenPath(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		files = append(files, f)
	}
	path := filepath.Join(dir, "delta")
	if err := bundledelta.Create(t.Context(), files[0], files[1], path, nil); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var want, got, said bytes.Buffer
	if err := bundledelta.UnpackHead(&want, f); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join("/tmp", filepath.Base(dir)+"-agent") // user nobody may not enter the test's directory
	if err := os.WriteFile(program, buildAgent(t), 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(program)
	c := exec.Command(program, bundlestore.DeltaCommand)
	c.Stdin, c.Stdout, c.Stderr, c.ExtraFiles = strings.NewReader(`{"delta":{}}`+"\n"), &got, &said, []*os.File{f}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534, Groups: []uint32{}}}
	if err := c.Run(); err != nil {
		t.Fatalf("%v: %s", err, said.String())
	}
	if !bytes.Equal(got.Bytes(), want.Bytes()) {
		t.Errorf("%d bytes, want %d; the first: %.80q", got.Len(), want.Len(), got.String())
	}
}
