package contents

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/osimage"
)

// sealedFiles is the stored form of the files in which two images differ.
type sealedFiles struct {
	Version string             `json:"version"`
	Was     string             `json:"was"`
	Is      string             `json:"is"`
	Files   []model.ConfigFile `json:"files"`
}

const sealVersion = "refit.dev/os-live/v1"

// SealFiles encodes the files in which the image with digest is differs from the one with digest
// was. It leaves out the disruption of a change, because rules may change.
func SealFiles(was, is string, files []model.ConfigFile) []byte {
	s := sealedFiles{Version: sealVersion, Was: was, Is: is, Files: []model.ConfigFile{}}
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

// OpenFiles decodes the result of SealFiles for these two images.
func OpenFiles(data []byte, was, is string) ([]model.ConfigFile, error) {
	var s sealedFiles
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("differences of OS images: %w", err)
	}
	if s.Version != sealVersion || s.Was != was || s.Is != is {
		return nil, fmt.Errorf("differences of OS images: they are of form %q and of %s and %s, and not of %s and %s", s.Version, s.Was, s.Is, was, is)
	}
	return s.Files, nil
}

// Reapply applies the rules, which may have changed, to the files of an earlier comparison.
func (r Rules) Reapply(files []model.ConfigFile) (live Live, why string) {
	var says []string
	for _, f := range files {
		if a := r.decideFor(f.Path); a.Reboots() {
			return Live{}, f.Path + ": " + a.Matches[0].Rule + " but a reboot"
		}
		live.Files = append(live.Files, r.Assign(f))
		says = append(says, f.Path+" ("+r.describeActions(f.Path)+")")
	}
	live.Summary = summarize(says)
	return live, ""
}

// Assign sets the disruption of a file by the rules.
func (r Rules) Assign(f model.ConfigFile) model.ConfigFile {
	f.Disruption, f.Units = r.decideFor(f.Path).ConfigDisruption()
	return f
}

// SealedPaths returns the paths in a result of SealFiles; nil if it is unreadable.
func SealedPaths(data []byte) (out []string) {
	var s sealedFiles
	if json.Unmarshal(data, &s) != nil {
		return nil
	}
	for _, f := range s.Files {
		out = append(out, f.Path)
	}
	return out
}

// sealedFacts is the stored form of what an image has.
type sealedFacts struct {
	Version   string               `json:"version"`
	Digest    string               `json:"digest"`
	Platforms []osimage.ImageFacts `json:"platforms"`
}

const factsVersion = "refit.dev/os-facts/v1"

// SealFacts encodes what the image with a digest has. How much was read does not belong to it:
// the same image gives the same bytes.
func SealFacts(digest string, facts []osimage.ImageFacts) []byte {
	s := sealedFacts{Version: factsVersion, Digest: digest, Platforms: slices.Clone(facts)}
	for i := range s.Platforms {
		s.Platforms[i].Read = 0
	}
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // it holds only strings, numbers and flags
	}
	return b
}

// OpenFacts decodes the result of SealFacts, with the digest of its image.
func OpenFacts(data []byte) (digest string, facts []osimage.ImageFacts, err error) {
	var s sealedFacts
	if err := json.Unmarshal(data, &s); err != nil {
		return "", nil, fmt.Errorf("facts of an OS image: %w", err)
	}
	if s.Version != factsVersion || s.Digest == "" || len(s.Platforms) == 0 {
		return "", nil, fmt.Errorf("facts of an OS image: they are of form %q", s.Version)
	}
	return s.Digest, s.Platforms, nil
}
