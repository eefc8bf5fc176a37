package oci

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
)

func TestFindLogin(t *testing.T) {
	t.Parallel()
	entries := map[string]string{}
	for _, key := range []string{"r.example", "r.example/team-a", "r.example/team-a/app", "https://index.docker.io/v1/", "docker.io/library", "*.wild.example", "a.wild.example", "*.wild.example/deep", "only.example/team"} {
		entries[LoginEntry(key)] = key
	}
	for repository, want := range map[string]string{
		"r.example/other/app":          "r.example",
		"r.example/team-a/web":         "r.example/team-a",
		"r.example/team-a/app":         "r.example/team-a/app",
		"r.example/team-a/app/part":    "r.example/team-a/app",
		"r.example/team-abc/app":       "r.example",
		"index.docker.io/someone/app":  "https://index.docker.io/v1/",
		"index.docker.io/library/busy": "docker.io/library",
		"a.wild.example/app":           "a.wild.example",
		"b.wild.example/app":           "*.wild.example",
		"b.wild.example/deep/app":      "*.wild.example/deep",
		"c.b.wild.example/app":         "",
		"only.example/team/app":        "only.example/team",
		"only.example/other/app":       "",
		"else.example/app":             "",
	} {
		if got, ok := FindLogin(entries, repository); got != want || ok != (want != "") {
			t.Errorf("%s: %q, want %q", repository, got, want)
		}
	}
}

// The keychain reads a configuration as podman and docker write it.
func TestDefaultKeychain(t *testing.T) {
	dir := t.TempDir()
	login := func(user string) string { return base64.StdEncoding.EncodeToString([]byte(user + ":password")) }
	text := fmt.Sprintf(`{"auths": {"r.example": {"auth": %q}, "r.example/team-a": {"auth": %q}, "only.example/team": {"auth": %q}}}`, login("all"), login("a"), login("team"))
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DOCKER_CONFIG", dir)
	for repository, want := range map[string]string{
		"r.example/team-a/app": "a", "r.example/team-b/app": "all", "only.example/team/app/part": "team", "only.example/other": "",
	} {
		r, err := name.NewRepository(repository)
		if err != nil {
			t.Fatal(err)
		}
		a, err := DefaultKeychain.Resolve(r)
		if err != nil {
			t.Fatal(err)
		}
		c, err := a.Authorization()
		if err != nil || c.Username != want {
			t.Errorf("%s asks as %q, want %q (%v)", repository, c.Username, want, err)
		}
	}
}
