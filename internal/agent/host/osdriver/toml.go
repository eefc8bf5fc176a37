package osdriver

import (
	"fmt"
	"slices"

	"github.com/BurntSushi/toml"
)

// ParseKargs reads one file of kargs.d for an architecture: TOML with at most the
// keys kargs and match-architectures, both lists of strings. Anything else is an
// error, as it is for bootc.
func ParseKargs(b []byte, arch string) ([]string, error) {
	var f struct {
		Kargs              []string `toml:"kargs"`
		MatchArchitectures []string `toml:"match-architectures"`
	}
	meta, err := toml.Decode(string(b), &f)
	if err != nil {
		return nil, err
	}
	if unknown := meta.Undecoded(); len(unknown) > 0 {
		return nil, fmt.Errorf("unknown key %q", unknown[0].String())
	}
	for i, key := range meta.Keys() { // the library takes a list that is there twice
		if slices.ContainsFunc(meta.Keys()[:i], func(k toml.Key) bool { return k.String() == key.String() }) {
			return nil, fmt.Errorf("key %q is there twice", key.String())
		}
	}
	if meta.IsDefined("match-architectures") && !slices.Contains(f.MatchArchitectures, arch) {
		return nil, nil
	}
	return f.Kargs, nil
}
