package oci

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
)

// LoginConfig is the part of a docker configuration that is about credentials.
type LoginConfig struct {
	Auths map[string]struct {
		Auth     string `json:"auth"`
		Username string `json:"username"`
		Password string `json:"password"`
		Token    string `json:"identitytoken"`
	} `json:"auths"`
	CredsStore  string            `json:"credsStore"`
	CredHelpers map[string]string `json:"credHelpers"`
}

// ErrLoginConfig says that a configuration is invalid. It repeats nothing of it.
var ErrLoginConfig = errors.New("not a docker configuration in JSON")

// ParseLogins reads the entries of a configuration that hold credentials.
func ParseLogins(text []byte) (LoginConfig, map[string]authn.AuthConfig, error) {
	var c LoginConfig
	if err := json.Unmarshal(text, &c); err != nil {
		return c, nil, ErrLoginConfig
	}
	out := map[string]authn.AuthConfig{}
	for key, a := range c.Auths {
		user, password := a.Username, a.Password
		if a.Auth != "" {
			raw, err := base64.StdEncoding.DecodeString(a.Auth)
			if err != nil {
				return c, nil, fmt.Errorf("%w: an auth entry is not base64", ErrLoginConfig)
			}
			user, password, _ = strings.Cut(string(raw), ":")
		}
		if user != "" || a.Token != "" { // empty ones mean that a helper has the credentials
			out[LoginEntry(key)] = authn.AuthConfig{Username: user, Password: password, IdentityToken: a.Token}
		}
	}
	return c, out, nil
}

// DefaultKeychain finds credentials in the usual files: ~/.docker/config.json or
// $DOCKER_CONFIG, else $REGISTRY_AUTH_FILE, else
// ${XDG_RUNTIME_DIR}/containers/auth.json. It calls credential helpers as
// [authn.DefaultKeychain] does. That keychain alone does not suffice: it ignores a login for
// a path above the repository, and sends one for a path to the whole host.
var DefaultKeychain authn.Keychain = keychain{}

type keychain struct{}

// Resolve implements [authn.Keychain].
func (keychain) Resolve(r authn.Resource) (authn.Authenticator, error) {
	text, err := os.ReadFile(loginFile())
	if errors.Is(err, os.ErrNotExist) || loginFile() == "" {
		return authn.Anonymous, nil
	}
	if err != nil {
		return nil, fmt.Errorf("registry logins: %w", err)
	}
	c, entries, err := ParseLogins(text)
	if err != nil {
		return nil, fmt.Errorf("registry logins in %s: %w", loginFile(), err)
	}
	if c.CredHelpers[r.RegistryStr()] != "" {
		return authn.DefaultKeychain.Resolve(r)
	}
	if found, ok := FindLogin(entries, r.String()); ok {
		return authn.FromConfig(found), nil
	}
	if c.CredsStore != "" {
		return authn.DefaultKeychain.Resolve(r)
	}
	return authn.Anonymous, nil
}

// loginFile is the first of these files that exists, "" if none does.
func loginFile() string {
	places := []string{os.Getenv("REGISTRY_AUTH_FILE")}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		places = append(places, filepath.Join(dir, "containers", "auth.json"))
	}
	docker := os.Getenv("DOCKER_CONFIG")
	if home, err := os.UserHomeDir(); docker == "" && err == nil {
		docker = filepath.Join(home, ".docker")
	}
	if docker != "" {
		places = append([]string{filepath.Join(docker, "config.json")}, places...)
	}
	for _, p := range places {
		if st, err := os.Stat(p); p != "" && err == nil && !st.IsDir() {
			return p
		}
	}
	return ""
}
