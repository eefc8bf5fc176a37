package service

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/internal/agent/host/kube"
)

// kubeletRecords makes a kubelet's directory as kubelet 1.35 and 1.36 write it.
func kubeletRecords(t *testing.T, policy string, pulled map[string]string, pulling ...string) kube.Paths {
	t.Helper()
	p := kube.Paths{Root: t.TempDir()}
	write := func(path, text string) {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(p.KubeletConfig(), "imagePullCredentialsVerificationPolicy: "+policy+"\n")
	name := func(of string) string { return fmt.Sprintf("sha256-%x", sha256.Sum256([]byte(of))) }
	for id, credentials := range pulled {
		write(filepath.Join(p.PullRecords(), "pulled", name(id)),
			fmt.Sprintf(`{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","lastUpdatedTime":"2026-11-20T12:00:00Z","imageRef":%q%s}`, id, credentials))
	}
	for _, image := range pulling {
		write(filepath.Join(p.PullRecords(), "pulling", name(image)), fmt.Sprintf(`{"kind":"ImagePullIntent","image":%q}`, image))
	}
	return p
}

// left are the images that the kubelet still has something about.
func left(t *testing.T, p kube.Paths) (out []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(p.PullRecords(), "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{`"imageRef":"`, `"image":"`} {
			if _, rest, ok := strings.Cut(string(b), key); ok {
				id, _, _ := strings.Cut(rest, `"`)
				out = append(out, id)
			}
		}
	}
	return out
}

// Kubelet 1.35: an attempt to pull that a restart cut off makes an image that was
// imported meanwhile unusable offline. Only such records of held images go.
func TestInterruptedPullsAreRepaired(t *testing.T) {
	const (
		secret = `,"credentialMapping":{"reg.test/app":{"kubernetesSecrets":[{"uid":"u","namespace":"n","name":"s","credentialHash":"h"}]}}`
		anyone = `,"credentialMapping":{"reg.test/app":{"nodePodsAccessible":true}}`
	)
	for name, c := range map[string]struct {
		policy   string
		pulled   map[string]string
		pulling  []string
		left     []string
		restarts int
	}{
		"a held image without credentials":                         {pulled: map[string]string{"id-a": ""}, restarts: 1},
		"an empty mapping is none":                                 {pulled: map[string]string{"id-a": `,"credentialMapping":{}`}, restarts: 1},
		"an image that is not held":                                {pulled: map[string]string{"id-x": ""}, left: []string{"id-x"}},
		"a held image that was pulled with a secret":               {pulled: map[string]string{"id-a": secret}, left: []string{"id-a"}},
		"a held image that anyone may use":                         {pulled: map[string]string{"id-a": anyone}, left: []string{"id-a"}},
		"a pull that goes on, alone, is none of ours":              {pulling: []string{"reg.test/app:1"}, left: []string{"reg.test/app:1"}},
		"at a restart the notes of pulls of held names go too":     {pulled: map[string]string{"id-a": ""}, pulling: []string{"reg.test/app:1", "reg.test/other:1"}, left: []string{"reg.test/other:1"}, restarts: 1},
		"a kubelet that never verifies is left alone":              {policy: "NeverVerify", pulled: map[string]string{"id-a": ""}, left: []string{"id-a"}},
		"no record at all, as kubelets before 1.35 and most after": {},
	} {
		t.Run(name, func(t *testing.T) {
			p := kubeletRecords(t, c.policy, c.pulled, c.pulling...)
			restarts := 0
			h := &nodeHost{paths: p, restart: func(context.Context) error { restarts++; return nil }}
			note := filepath.Join(t.TempDir(), "note")
			for range 2 { // done twice is done once
				if _, err := h.repairPulls(t.Context(), note, []string{"id-a"}, []string{"reg.test/app:1"}); err != nil {
					t.Fatal(err)
				}
			}
			if d := cmp.Diff(c.left, left(t, p)); d != "" || restarts != c.restarts {
				t.Fatalf("%d restarts, left: %s", restarts, d)
			}
			if _, err := os.Stat(note); err == nil {
				t.Error("the note stays")
			}
		})
	}
	t.Run("a restart that fails is carried out by the next try, though the record is gone", func(t *testing.T) {
		p := kubeletRecords(t, "", map[string]string{"id-a": ""})
		fails := errors.New("systemd does not answer")
		restarts := 0
		h := &nodeHost{paths: p, restart: func(context.Context) error { restarts++; return fails }}
		note := filepath.Join(t.TempDir(), "note")
		if _, err := h.repairPulls(t.Context(), note, []string{"id-a"}, nil); !errors.Is(err, fails) {
			t.Fatal(err)
		}
		fails = nil
		for range 2 {
			if _, err := h.repairPulls(t.Context(), note, []string{"id-a"}, nil); err != nil {
				t.Fatal(err)
			}
		}
		if restarts != 2 {
			t.Fatalf("%d restarts", restarts)
		}
	})
}
