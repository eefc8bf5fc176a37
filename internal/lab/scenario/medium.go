package scenario

import (
	"io"
	"os"
)

// writeMedium writes the bundle raw onto a file that is a bit larger, as dd onto
// a stick does.
func (s *Scenario) writeMedium(b Bundle) (string, error) {
	path := b.Path + ".stick"
	in, err := os.Open(b.Path)
	if err != nil {
		return "", err
	}
	defer in.Close()
	out, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer out.Close()
	if _, err := io.Copy(out, in); err != nil {
		return "", err
	}
	size := (b.Size + mediumSlack + 4095) / 4096 * 4096
	if err := out.Truncate(size); err != nil {
		return "", err
	}
	return path, out.Sync()
}
