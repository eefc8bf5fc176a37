package coldstart

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/refit-dev/refit/internal/fsutil"
)

// LayerIndexDir is a directory of indexes, by the digest of the layer's blob.
type LayerIndexDir string

func (s LayerIndexDir) path(digest string) string {
	return filepath.Join(string(s), strings.TrimPrefix(digest, "sha256:")+".json")
}

// errNoChecksum: the file does not end with its own checksum.
var errNoChecksum = errors.New("its checksum is missing or does not match")

// Load reads an index. fs.ErrNotExist if there is none.
func (s LayerIndexDir) Load(digest string) (LayerIndex, error) {
	b, err := os.ReadFile(s.path(digest))
	if err != nil {
		return nil, err
	}
	body, sum, ok := bytes.Cut(b, []byte("\n"))
	if want := sha256.Sum256(body); !ok || hex.EncodeToString(want[:]) != strings.TrimSpace(string(sum)) {
		return nil, fmt.Errorf("index of layer %s: %w", digest, errNoChecksum)
	}
	var x LayerIndex
	if err := json.Unmarshal(body, &x); err != nil {
		return nil, fmt.Errorf("index of layer %s: %w", digest, err)
	}
	return x, nil
}

// Save writes an index and syncs it.
func (s LayerIndexDir) Save(digest string, x LayerIndex) error {
	body, err := json.Marshal(x)
	if err != nil {
		return fmt.Errorf("index of layer %s: %w", digest, err)
	}
	sum := sha256.Sum256(body)
	return fsutil.WriteFile(s.path(digest), append(append(body, '\n'), hex.EncodeToString(sum[:])...), 0o600)
}

// Retain removes the indexes of layers that are not wanted.
func (s LayerIndexDir) Retain(wanted map[string]bool) error {
	es, err := os.ReadDir(string(s))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("indexes of layers: %w", err)
	}
	var all []error
	for _, e := range es {
		name, ok := strings.CutSuffix(e.Name(), ".json")
		if ok && !wanted["sha256:"+name] {
			all = append(all, os.Remove(filepath.Join(string(s), e.Name())))
		}
	}
	return errors.Join(all...)
}
