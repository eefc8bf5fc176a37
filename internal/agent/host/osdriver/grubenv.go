package osdriver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// envHeader begins GRUB's environment block. The block is a file of a fixed size: lines NAME=VALUE,
// in which a backslash quotes a backslash or a line end, then '#' to the end. See
// grub-core/lib/envblk.c and docs/grub.texi of GRUB.
const envHeader = "# GRUB Environment Block\n"

// envValue is a variable of the block; without a value the variable is removed.
type envValue struct{ name, value string }

// envLines splits a block into its lines, with their ends.
func envLines(block []byte) ([]string, error) {
	rest, ok := strings.CutPrefix(string(block), envHeader)
	if !ok {
		return nil, fmt.Errorf("GRUB environment block: no line %q at its start", strings.TrimSpace(envHeader))
	}
	var lines []string
	for rest != "" {
		n := envLineEnd(rest)
		if n < 0 {
			break
		}
		lines, rest = append(lines, rest[:n]), rest[n:]
	}
	if strings.Trim(rest, "#") != "" {
		return nil, fmt.Errorf("GRUB environment block: %q at its end is no line", rest)
	}
	return lines, nil
}

// envLineEnd is the length of the first line, -1 if it has no end.
func envLineEnd(s string) int {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '\n':
			return i + 1
		}
	}
	return -1
}

// grubEnvValue is a variable of a block. Only values without a backslash are of interest.
func grubEnvValue(block []byte, name string) (string, bool) {
	lines, err := envLines(block)
	if err != nil {
		return "", false
	}
	for _, l := range lines {
		if v, ok := strings.CutPrefix(l, name+"="); ok {
			return strings.TrimSuffix(v, "\n"), true
		}
	}
	return "", false
}

// withEnvValues is a block of the same size with other values. All other lines stay as they are.
func withEnvValues(block []byte, values ...envValue) ([]byte, error) {
	lines, err := envLines(block)
	if err != nil {
		return nil, err
	}
	out := bytes.NewBufferString(envHeader)
	for _, l := range lines {
		name, _, _ := strings.Cut(l, "=")
		keep := true
		for _, v := range values {
			keep = keep && v.name != name
		}
		if keep {
			out.WriteString(l)
		}
	}
	for _, v := range values {
		if v.value != "" {
			out.WriteString(v.name + "=" + v.value + "\n")
		}
	}
	if out.Len() > len(block) {
		return nil, fmt.Errorf("GRUB environment block: no room for %d more bytes", out.Len()-len(block))
	}
	out.Write(bytes.Repeat([]byte("#"), len(block)-out.Len()))
	return out.Bytes(), nil
}

// updateGrubEnv writes values into a block, in place: GRUB saves into the blocks of the file on the
// disk, and the path may be a link to the EFI system partition.
func updateGrubEnv(ctx context.Context, r Runner, path string, values ...envValue) error {
	block, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("GRUB environment block: %w", err)
	}
	next, err := withEnvValues(block, values...)
	if err != nil || bytes.Equal(next, block) {
		return err
	}
	if err = overwrite(path, next); errors.Is(err, unix.EROFS) && r != nil {
		err = overwriteReadOnly(ctx, r, path, next)
	}
	if err != nil {
		return fmt.Errorf("GRUB environment block %s: %w", path, err)
	}
	return nil
}

func overwrite(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err = f.WriteAt(data, 0); err == nil {
		err = f.Sync()
	}
	return err
}

// overwriteReadOnly is overwrite on a file system that is mounted read-only, as bootc has /boot. It is
// writable in a mount namespace that ends with the program, as ostree does it: for the host it stays
// read-only.
func overwriteReadOnly(ctx context.Context, r Runner, path string, data []byte) error {
	file, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	const script = `mount -o remount,rw "$(findmnt -n -o TARGET --target "$1" | tail -n 1)" && exec dd of="$1" conv=notrunc,fsync status=none`
	_, err = r.Run(ctx, bytes.NewReader(data), "unshare", "--mount", "--", "/bin/sh", "-c", script, "sh", file)
	return err
}
