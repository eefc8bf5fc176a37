package bundlecmd

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// Names of the files that `refit keys generate` writes.
const (
	privateKeyFile = "refit.key"
	publicKeyFile  = "refit.pub"
)

// NewKeys is `refit keys`.
func NewKeys() *cobra.Command {
	c := &cobra.Command{Use: "keys", Short: "Create keys to sign bundles", Args: cobra.NoArgs}
	c.AddCommand(newGenerate())
	return c
}

func newGenerate() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use: "generate --out DIR", Short: "Create a pair of Ed25519 keys: DIR/refit.key (private) and DIR/refit.pub",
		Long: "Create refit.key (PKCS #8 PEM, mode 0600) and refit.pub (PKIX PEM) in DIR, and print the key's identifier.\nThe command never replaces existing keys.",
		Args: console.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if dir == "" {
				return console.UsageErrorf("--out DIR is missing: name the directory for the keys")
			}
			id, err := generate(dir)
			if err != nil {
				return err
			}
			return printf(c, "%s\n", id)
		},
	}
	c.Flags().StringVar(&dir, "out", "", "directory for the keys; created if it does not exist")
	return c
}

func generate(dir string) (id string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("directory for the keys: %w", err)
	}
	for _, name := range []string{privateKeyFile, publicKeyFile} {
		if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			return "", console.UsageErrorf("%s exists already, and keys are never replaced: use another directory", filepath.Join(dir, name))
		}
	}
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return "", err
	}
	secret, err := bundle.PrivateKeyPEM(priv)
	if err != nil {
		return "", err
	}
	public, err := bundle.PublicKeyPEM(pub)
	if err != nil {
		return "", err
	}
	err = fsutil.WriteFile(filepath.Join(dir, privateKeyFile), secret, 0o600)
	if err == nil {
		err = fsutil.WriteFile(filepath.Join(dir, publicKeyFile), public, 0o644)
	}
	if err != nil { // otherwise the user would have to remove half a pair
		return "", errors.Join(err, ignoreGone(os.Remove(filepath.Join(dir, privateKeyFile))), ignoreGone(os.Remove(filepath.Join(dir, publicKeyFile))))
	}
	return bundle.KeyID(pub), nil
}
