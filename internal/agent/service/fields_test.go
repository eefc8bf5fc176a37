package service

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/refit-dev/refit/internal/model"
)

// A field is what its file says, if that is a word; other content is not repeated.
func TestExternalFields(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct{ text, want string }{
		"a version":           {" 1.2.3+x \n", "1.2.3+x"},
		"nothing":             {"\n", ""},
		"a sentence":          {"root:$6$secret:19000::\n", "another"},
		"too long":            {strings.Repeat("a", 65), "another"},
		"longer than is read": {strings.Repeat("a", 5000), "another"},
	} {
		path := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := valueIn(path); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if valueIn(pipe) != "" || valueIn(filepath.Join(dir, "none")) != "" || valueIn(dir) != "" {
		t.Error("what is no file has a value")
	}
	for _, f := range []string{"/etc/kubernetes/admin.conf", "/var/lib/kubelet/pki/kubelet.key", "/run/refit/x", "/sys/../etc/kubernetes/x", "relative"} {
		if got := externalFields(t.Context(), &model.NodeConfig{External: []model.ConfigField{{Path: "a/b", Value: "1", File: f}}}); len(got) > 0 {
			t.Errorf("%s is read: %v", f, got)
		}
	}
}
