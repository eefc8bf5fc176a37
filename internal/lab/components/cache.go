package components

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"

	"github.com/refit-dev/refit/internal/lab/kernel"
)

// Progress gets a line for each wait. It may be nil.
type Progress func(line string)

func (p Progress) say(format string, args ...any) {
	if p != nil {
		p(fmt.Sprintf(format, args...))
	}
}

// CacheDir is where everything built is kept: refit/lab below the user's cache
// directory ($XDG_CACHE_HOME, or ~/.cache).
func CacheDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no place to keep built components: %w; set HOME or XDG_CACHE_HOME", err)
	}
	return filepath.Join(base, "refit", "lab"), nil
}

// key is a short name for everything that decides what a build results in.
func key(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s;", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}

// locked runs do while no other process does the same for path.
func locked(ctx context.Context, path string, progress Progress, do func() error) error {
	release, err := kernel.AcquireLock(ctx, path, func() {
		progress.say("waiting for another build of the same components (%s)", path)
	})
	if err != nil {
		return err
	}
	defer release()
	return do()
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
