package registry

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/refit-dev/refit/internal/oci"
)

// Keys are the credentials of a pull secret, by registry or a path below one. They never
// print any of it.
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

// authenticatorFor returns the credentials for a repository, which starts with its registry.
func (k *Keys) authenticatorFor(repository string) authn.Authenticator {
	c, ok := oci.FindLogin(k.byEntry, repository)
	if !ok {
		return authn.Anonymous
	}
	return authn.FromConfig(c)
}

// String keeps credentials out of logs and errors.
func (k *Keys) String() string { return "credentials" }

// GoString keeps them out of %#v.
func (k *Keys) GoString() string { return "credentials" }

// key keeps answers for different credentials apart.
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
