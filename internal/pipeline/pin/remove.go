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
	wanted, ours := map[string]bool{}, map[string]bool{}
	for _, i := range want {
		wanted[i.Name], wanted[Repository(i.Name)+"@"+i.Digest] = true, true
	}
	for _, key := range loaded {
		name, digest, _ := strings.Cut(key, "@")
		ours[name], ours[Repository(name)+"@"+digest] = true, true
	}
	byTag := indexByTag(have)
	for _, key := range loaded {
		name, digest, _ := strings.Cut(key, "@")
		p, ok := byTag[name]
		switch {
		case !ok || !slices.Contains(p.Digests, Repository(name)+"@"+digest) || path.Base(Repository(name)) == "pause":
			r.Forget = append(r.Forget, key)
		case p.Pinned || used[p.ID] && p.ID != "":
		case slices.ContainsFunc(slices.Concat(p.Tags, p.Digests), func(n string) bool { return !ours[n] || wanted[n] || used[n] }):
		default:
			r.Remove = append(r.Remove, key)
		}
	}
	return r
}
