package install

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOurOwnRootIsRefused(t *testing.T) {
	t.Parallel()
	err := installOnHost(context.Background(), "/", io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "hostPID") {
		t.Fatalf("installing into our own root: %v", err)
	}
	if _, err := os.Stat(hostProgram); err == nil {
		t.Error("something was written before the refusal")
	}
}

func TestAMissingHostIsReported(t *testing.T) {
	t.Parallel()
	if err := installOnHost(context.Background(), filepath.Join(t.TempDir(), "none"), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "privileged") {
		t.Fatalf("a root that is not there: %v", err)
	}
}

func TestCopySelfReplacesWhatAnEarlierTryLeft(t *testing.T) {
	t.Parallel()
	to := filepath.Join(t.TempDir(), "agent")
	if err := os.WriteFile(to, []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := copySelf(to); err != nil {
		t.Fatal(err)
	}
	self, err := os.Stat("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.Stat(to)
	if err != nil {
		t.Fatal(err)
	}
	if got.Size() != self.Size() || got.Mode().Perm() != 0o700 {
		t.Errorf("size %d mode %v, want %d 0700", got.Size(), got.Mode(), self.Size())
	}
}
