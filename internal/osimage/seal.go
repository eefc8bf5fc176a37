package osimage

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/refit-dev/refit/internal/model"
)

// sealed is the stored form of a configuration, with the paths that refit chose, which
// model.NodeConfig does not encode.
type sealed struct {
	Version string           `json:"version"`
	Config  model.NodeConfig `json:"config"`
	Own     []string         `json:"own,omitempty"`
}

const sealVersion = "refit.dev/os-config/v1"

// SealConfig encodes a configuration, so that the same image can be built from it later.
func SealConfig(c model.NodeConfig) []byte {
	s := sealed{Version: sealVersion, Config: c}
	for _, f := range c.Files {
		if f.Own {
			s.Own = append(s.Own, f.Path)
		}
	}
	slices.Sort(s.Own)
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // it holds only strings, numbers and bytes
	}
	return b
}

// OpenConfig decodes the result of SealConfig.
func OpenConfig(data []byte) (model.NodeConfig, error) {
	var s sealed
	if err := json.Unmarshal(data, &s); err != nil {
		return model.NodeConfig{}, fmt.Errorf("configuration of an OS image: %w", err)
	}
	if s.Version != sealVersion {
		return model.NodeConfig{}, fmt.Errorf("configuration of an OS image: its form %q is not known here, %q is", s.Version, sealVersion)
	}
	for i := range s.Config.Files {
		s.Config.Files[i].Own = slices.Contains(s.Own, s.Config.Files[i].Path)
	}
	return s.Config, nil
}
