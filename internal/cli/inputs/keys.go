package inputs

import (
	"crypto/ed25519"
	"fmt"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// maxKey bounds a key's file in bytes.
const maxKey = 64 << 10

// ReadPrivateKey reads the file of --key.
func ReadPrivateKey(path string) (ed25519.PrivateKey, error) {
	b, err := fsutil.ReadSmall(path, maxKey)
	if err != nil {
		return nil, console.UsageError(fmt.Errorf("--key: %w", err))
	}
	k, err := bundle.ParsePrivateKeyPEM(b)
	if err != nil {
		return nil, console.UsageError(fmt.Errorf("--key %s: %w", path, err))
	}
	return k, nil
}

// ReadPublicKey reads the file of --pub.
func ReadPublicKey(path string) (ed25519.PublicKey, error) {
	b, err := fsutil.ReadSmall(path, maxKey)
	if err != nil {
		return nil, console.UsageError(fmt.Errorf("--pub: %w", err))
	}
	k, err := bundle.ParsePublicKeyPEM(b)
	if err != nil {
		return nil, console.UsageError(fmt.Errorf("--pub %s: %w", path, err))
	}
	return k, nil
}

// ReadPublicKeys reads the files of --pub; the names of the keys are the paths.
func ReadPublicKeys(paths []string) (map[string]ed25519.PublicKey, error) {
	keys := map[string]ed25519.PublicKey{}
	for _, p := range paths {
		k, err := ReadPublicKey(p)
		if err != nil {
			return nil, err
		}
		keys[p] = k
	}
	return keys, nil
}
