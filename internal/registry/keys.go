package registry

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/refit-dev/refit/internal/oci"
)

// Keys are the credentials of a pull secret, by registry or a path below one. They print as nothing.
type Keys struct {
	byEntry map[string]authn.AuthConfig
	sum     string
}

// ParseKeys reads the text of a Secret of type kubernetes.io/dockerconfigjson.
// No error repeats any of it.
func ParseKeys(dockerConfigJSON []byte) (*Keys, error) {
	_, entries, err := oci.ParseLogins(dockerConfigJSON)
	if err != nil {
		return nil, fmt.Errorf("the pull secret is unusable: %w; make it with kubectl create secret docker-registry", err)
	}
	sum := sha256.Sum256(dockerConfigJSON)
	return &Keys{byEntry: entries, sum: hex.EncodeToString(sum[:])}, nil
}

// of is who asks a repository, which begins with its registry.
func (k *Keys) of(repository string) authn.Authenticator {
	c, ok := oci.FindLogin(k.byEntry, repository)
	if !ok {
		return authn.Anonymous
	}
	return authn.FromConfig(c)
}

// String keeps credentials out of logs and errors.
func (k *Keys) String() string { return "credentials" }

// GoString too.
func (k *Keys) GoString() string { return "credentials" }

// key tells answers to different askers apart.
func (at Place) key() string {
	key := at.Repository
	if at.Insecure {
		key += " insecure"
	}
	if at.Keys != nil {
		key += " " + at.Keys.sum
	}
	return key
}
