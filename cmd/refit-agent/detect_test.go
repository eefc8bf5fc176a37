package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a person sees on a machine, and the exit code.
func TestDetectCommand(t *testing.T) {
	t.Parallel()
	k0s := map[string]string{"etc/systemd/system/k0sworker.service": "ExecStart=/usr/local/bin/k0s worker --data-dir=/srv/k0s --token-file=/SECRET\n"}
	for name, c := range map[string]struct {
		files map[string]string
		args  []string
		code  int
		says  []string
	}{
		"a distribution": {k0s, nil, 0, []string{"distribution  k0s agent\n", "/etc/systemd/system/k0sworker.service", "data directory: /srv/k0s, by default /var/lib/k0s",
			"/srv/k0s/kubelet.conf", "updates Kubernetes and OS images"}},
		"as JSON":           {k0s, []string{"-o", "json"}, 0, []string{`"distribution": "k0s"`, `"here": "/srv/k0s"`}},
		"as YAML":           {k0s, []string{"-o", "yaml"}, 0, []string{"distribution: k0s\n", "  here: /srv/k0s\n"}},
		"none":              {nil, nil, exitBlocked, []string{"Unknown"}},
		"none as JSON":      {nil, []string{"-o", "json"}, exitBlocked, []string{`"distribution": "Unknown"`, `"seen": []`}},
		"two":               {map[string]string{"etc/systemd/system/k0sworker.service": "x", "etc/systemd/system/k3s.service": "x"}, nil, exitBlocked, []string{"Ambiguous", "/etc/systemd/system/k3s.service"}},
		"another output":    {k0s, []string{"-o", "wide"}, exitUsage, nil},
		"a foreign program": {k0s, []string{"--versions"}, exitUsage, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for f, text := range c.files {
				if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(f)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, f), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cmd := root()
			var out bytes.Buffer
			cmd.SetOut(&out)
			cmd.SetArgs(append([]string{"detect", "--root", dir}, c.args...))
			code := 0
			if err := cmd.ExecuteContext(context.Background()); err != nil {
				code = exitCode(err)
			}
			if code != c.code {
				t.Errorf("exit code %d, want %d\n%s", code, c.code, out.String())
			}
			for _, s := range c.says {
				if !strings.Contains(out.String(), s) {
					t.Errorf("no %q in\n%s", s, out.String())
				}
			}
			if strings.Contains(out.String(), "SECRET") {
				t.Errorf("an argument of the unit is printed:\n%s", out.String())
			}
			if len(c.args) > 1 && c.args[1] == "json" && !json.Valid(out.Bytes()) {
				t.Errorf("no JSON:\n%s", out.String())
			}
		})
	}
}

// Every call of refit-agent in a code block of the docs exists, with its flags.
func TestShownCommandsExist(t *testing.T) {
	t.Parallel()
	found := 0
	err := filepath.WalkDir("../../docs", func(p string, e fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(p) != ".md" {
			return err
		}
		page, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		shell := false
		for line := range strings.Lines(string(page)) {
			if strings.HasPrefix(line, "```") {
				shell = strings.HasPrefix(line, "```sh")
			}
			words := strings.Fields(strings.TrimPrefix(line, "sudo "))
			if !shell || len(words) < 2 || words[0] != "refit-agent" {
				continue
			}
			found++
			c, rest, err := root().Find(words[1:])
			if err == nil {
				err = c.ParseFlags(rest)
			}
			if err == nil {
				err = c.ValidateArgs(c.Flags().Args())
			}
			if err != nil || !c.HasParent() {
				t.Errorf("%s: %q: %v", p, line, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 3 {
		t.Errorf("%d commands found: the test reads the wrong lines", found)
	}
}
