package pin

import (
	"path"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/model"
)

// Removal is what happens to images that refit loaded and that no pin set wants any more.
type Removal struct {
	// Remove are the keys (see Key) of images that nothing needs: their content can go.
	Remove []string
	// Forget are keys of images that are not there any more, or not refit's to remove.
	Forget []string
}

// Removable decides which images refit removes from the runtime. loaded are the keys of images
// that refit loaded itself and that have no pin of refit. used has the names, digests and IDs
// of images that containers were made from.
//
// An image stays while a container uses it, another component pins it, or it has a name that
// refit did not give it. Images of pods' sandboxes stay too: no runtime reports which one it
// uses.
func Removable(loaded []string, want []model.PinSetImage, have []RuntimeImage, used map[string]bool) Removal {
	var r Removal
	var keys []string
	for _, i := range want {
		keys = append(keys, Key(i))
	}
	wanted, ours := namesOf(keys), namesOf(loaded)
	needed := func(name string) bool { return !ours[name] || wanted[name] || used[name] }
	byTag := indexByTag(have)
	for _, key := range loaded {
		name, digest, _ := strings.Cut(key, "@")
		p, ok := byTag[name]
		switch {
		case !ok || !slices.Contains(p.Digests, Repository(name)+"@"+digest) || isSandbox(name):
			r.Forget = append(r.Forget, key)
		case p.Pinned || isUsed(p.ID, used):
		case !slices.ContainsFunc(slices.Concat(p.Tags, p.Digests), needed):
			r.Remove = append(r.Remove, key)
		}
	}
	return r
}

// namesOf are the names with tag, and those with digest, of keys.
func namesOf(keys []string) map[string]bool {
	out := map[string]bool{}
	for _, key := range keys {
		name, digest, _ := strings.Cut(key, "@")
		out[name], out[Repository(name)+"@"+digest] = true, true
	}
	return out
}

// isUsed reports whether an image is used. One whose ID is unknown is known by its names only.
func isUsed(id string, used map[string]bool) bool { return id != "" && used[id] }

// isSandbox reports whether an image may be that of pods' sandboxes.
func isSandbox(name string) bool { return path.Base(Repository(name)) == "pause" }
