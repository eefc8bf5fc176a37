package osdriver

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// kargs makes the arguments for a commit from those that the machine boots with
// now: libostree alone does not read what an image brings.
func (d *OstreeDriver) kargs(ctx context.Context, have []string, rev string) ([]string, error) {
	dir, err := os.MkdirTemp("", "refit-kargs-")
	if err != nil {
		return nil, fmt.Errorf("kernel arguments of the image: %w", err)
	}
	defer os.RemoveAll(dir)
	if err := d.copyKargs(ctx, rev, dir); err != nil {
		return nil, err
	}
	return FollowImage(have, filepath.Join(d.host.Root, "/"), dir)
}

// copyKargs writes a commit's kargs.d below dir; nothing if it has none.
func (d *OstreeDriver) copyKargs(ctx context.Context, rev, dir string) error {
	out, err := d.run(ctx, "ls", "--repo="+ostreeRepo, rev, "/"+KargsDir)
	if err != nil {
		return nil //nolint:nilerr // it has no such folder
	}
	to := filepath.Join(dir, KargsDir)
	if err := os.MkdirAll(to, 0o700); err != nil {
		return fmt.Errorf("kernel arguments of the image: %w", err)
	}
	for _, l := range strings.Split(out, "\n") {
		i := strings.Index(l, "/"+KargsDir+"/")
		if i < 0 || !strings.HasPrefix(l, "-") {
			continue
		}
		text, err := d.host.Runner.Run(ctx, nil, "ostree", "cat", "--repo="+ostreeRepo, rev, l[i:])
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, path.Base(l[i:])), text, 0o600); err != nil {
			return fmt.Errorf("kernel arguments of the image: %w", err)
		}
	}
	return nil
}
