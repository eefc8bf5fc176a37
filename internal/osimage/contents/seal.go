package contents

import (
	"encoding/json"
	"fmt"

	"github.com/refit-dev/refit/internal/model"
)

// letter are the files in which two images differ.
type letter struct {
	Version string             `json:"version"`
	Was     string             `json:"was"`
	Is      string             `json:"is"`
	Files   []model.ConfigFile `json:"files"`
}

const sealVersion = "refit.dev/os-live/v1"

// Seal writes files down in which the image of digest is differs from that of digest was.
// What a change of them costs is no part of it: rules may change.
func Seal(was, is string, files []model.ConfigFile) []byte {
	s := letter{Version: sealVersion, Was: was, Is: is, Files: []model.ConfigFile{}}
	for _, f := range files {
		f.Disruption, f.Units = "", nil
		s.Files = append(s.Files, f)
	}
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // it holds only strings, numbers and bytes
	}
	return b
}

// Open reads what Seal wrote, of these two images.
func Open(data []byte, was, is string) ([]model.ConfigFile, error) {
	var s letter
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("differences of OS images: %w", err)
	}
	if s.Version != sealVersion || s.Was != was || s.Is != is {
		return nil, fmt.Errorf("differences of OS images: they are of form %q and of %s and %s, and not of %s and %s", s.Version, s.Was, s.Is, was, is)
	}
	return s.Files, nil
}

// Again asks the rules, which may have changed, about files that were found earlier.
func (r Rules) Again(files []model.ConfigFile) (live Live, why string) {
	var says []string
	for _, f := range files {
		if a := r.decide(f.Path); a.Reboots() {
			return Live{}, f.Path + ": " + a.Because[0].Rule + " but a reboot"
		}
		live.Files = append(live.Files, r.Assign(f))
		says = append(says, f.Path+" ("+r.says(f.Path)+")")
	}
	live.Say = say(says)
	return live, ""
}

// Assign says of a file what its change costs by the rules.
func (r Rules) Assign(f model.ConfigFile) model.ConfigFile {
	f.Disruption, f.Units = r.decide(f.Path).As()
	return f
}

// Paths of what Seal wrote; nil if that cannot be read.
func Paths(data []byte) (out []string) {
	var s letter
	if json.Unmarshal(data, &s) != nil {
		return nil
	}
	for _, f := range s.Files {
		out = append(out, f.Path)
	}
	return out
}
