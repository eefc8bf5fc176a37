package registry

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
)

// Keys are the credentials of a pull secret, by registry. They print as nothing.
type Keys struct {
	byHost map[string]authn.AuthConfig
	sum    string
}

// ParseKeys reads the text of a Secret of type kubernetes.io/dockerconfigjson.
// No error repeats any of it.
func ParseKeys(dockerConfigJSON []byte) (*Keys, error) {
	var c struct {
		Auths map[string]struct {
			Auth     string `json:"auth"`
			Username string `json:"username"`
			Password string `json:"password"`
			Token    string `json:"identitytoken"`
		} `json:"auths"`
	}
	if err := json.Unmarshal(dockerConfigJSON, &c); err != nil {
		return nil, errors.New("the pull secret is no docker configuration in JSON: make it with kubectl create secret docker-registry")
	}
	sum := sha256.Sum256(dockerConfigJSON)
	k := &Keys{byHost: map[string]authn.AuthConfig{}, sum: hex.EncodeToString(sum[:])}
	for host, a := range c.Auths {
		user, password := a.Username, a.Password
		if a.Auth != "" {
			raw, err := base64.StdEncoding.DecodeString(a.Auth)
			if err != nil {
				return nil, errors.New("an auth entry of the pull secret is no base64")
			}
			user, password, _ = strings.Cut(string(raw), ":")
		}
		k.byHost[hostOf(host)] = authn.AuthConfig{Username: user, Password: password, IdentityToken: a.Token}
	}
	return k, nil
}

// hostOf is the registry of an entry, which may be an address.
func hostOf(entry string) string {
	entry = strings.TrimPrefix(strings.TrimPrefix(entry, "https://"), "http://")
	host, _, _ := strings.Cut(entry, "/")
	if host == "docker.io" {
		return "index.docker.io"
	}
	return host
}

// of is who asks a registry.
func (k *Keys) of(host string) authn.Authenticator {
	c, ok := k.byHost[host]
	if !ok {
		return authn.Anonymous
	}
	return authn.FromConfig(c)
}

// String keeps credentials out of whatever prints.
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
