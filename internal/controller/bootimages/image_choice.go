package bootimages

import (
	"cmp"
	"fmt"
	"maps"
	"strings"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/bootimage"
	"github.com/refit-dev/refit/internal/bootimage/bootstream"
	"github.com/refit-dev/refit/internal/bootimage/machinekinds"
	"github.com/refit-dev/refit/internal/controller/bootstreams"
)

// Asker is a machine manager, as far as the choice of its image goes.
type Asker struct {
	Choice *v1alpha1.MachineSelection
	Row    *machinekinds.ImageKind
	// Ref is the image that it has now, Facts are what it says of itself.
	Ref   machinekinds.Reference
	Facts machinekinds.Facts
	// Architecture that all nodes of the cluster have, empty if they differ.
	Architecture string
	// Region of the object where the image is not said to be in one; RegionErr is
	// why it is not known.
	Region    string
	RegionErr error
}

// Key of the image in a stream.
func (a Asker) Key() (bootstream.Key, error) {
	k := bootstream.Key{OSStream: cmp.Or(a.Facts.OSStream, a.Choice.OSStream), Platform: a.platform(), Region: a.region(), Variant: a.Choice.Variant}
	if k.Platform == "" {
		return k, fmt.Errorf("nobody says which platform it is: set platform in the policy")
	}
	if a.Facts.ArchitectureErr != nil {
		return k, a.Facts.ArchitectureErr
	}
	spelled := cmp.Or(a.Facts.Architecture, a.Choice.Architecture, a.Architecture)
	if spelled == "" {
		return k, fmt.Errorf("nobody says which architecture it is, and the cluster's nodes are of several: set architecture in the policy, or kubernetes.io/arch on the object")
	}
	arch, ok := bootstream.Architecture(spelled)
	if !ok {
		return k, fmt.Errorf("architecture %q is not known", spelled)
	}
	k.Architecture = arch
	return k, nil
}

func (a Asker) platform() string { return cmp.Or(a.Row.Platform, a.Choice.Platform) }

// region: what a person says counts where the object itself says nothing.
func (a Asker) region() string { return cmp.Or(a.Ref.Region, a.Choice.Region, a.Region) }

// Find the image in a stream. Of several offers of a marketplace the one is taken
// that the object has now, in another version.
func (a Asker) Find(s *bootstreams.Stream) (bootstream.Image, error) {
	k, err := a.Key()
	if err != nil {
		return bootstream.Image{}, err
	}
	i, err := s.Data.Find(s.Data.Like(k, a.Ref.Attributes, a.Ref.Text))
	if err != nil && k.Region == "" && a.RegionErr != nil {
		return i, fmt.Errorf("%w; its region is not known: %w", err, a.RegionErr)
	}
	return i, err
}

// Names are the attributes of an image, as its platform knows it: those of the
// stream, of the policy, and of the upload of a file.
func (a Asker) Names(i bootstream.Image) map[string]string {
	out := a.given(i)
	if u, ok := i.UploadIn(a.region()); ok {
		maps.Copy(out, u.Attributes)
	}
	return out
}

// given by the stream and by the policy.
func (a Asker) given(i bootstream.Image) map[string]string {
	out := maps.Clone(i.Attributes)
	words := strings.NewReplacer("{version}", i.Version)
	if f, ok := i.Disk(); ok {
		words = strings.NewReplacer("{version}", i.Version, "{file}", f.Base())
	}
	for k, v := range a.Choice.Attributes {
		out[k] = words.Replace(v)
	}
	return out
}

// Upload says what a person must bring to the platform before machines can start
// from an image; nil if nothing. needs are the attributes that the object names it
// by. complete is false if they are not all known before the upload.
func (a Asker) Upload(stream string, i bootstream.Image, needs []string) (u *bootimage.Upload, complete bool) {
	f, isFile := i.Disk()
	_, done := i.UploadIn(a.region())
	have, foreign := a.Names(i), false
	complete = true
	names := map[string]string{}
	for _, n := range needs {
		names[n] = have[n]
		complete = complete && have[n] != ""
		foreign = foreign || have[n] == "" || have[n] != i.Attributes[n]
	}
	if !isFile || !foreign || done && complete {
		return nil, complete
	}
	return &bootimage.Upload{Platform: a.platform(), Region: a.region(), Stream: stream, File: f.Base(), Version: i.Version, Location: f.Location,
		SHA256: f.SHA256, Uncompressed: f.Uncompressed, Payload: f.Payload, Names: names}, complete
}

// Recognise the image that the object has now in a stream, by its names or by
// those that the policy and an upload give it.
func (a Asker) Recognise(s *bootstreams.Stream) (bootstream.Image, bool) {
	if i, ok := s.Data.Recognise(a.platform(), a.Ref.Attributes); ok {
		return i, true
	}
	if len(a.Choice.Attributes) == 0 {
		return bootstream.Image{}, false
	}
	i, err := a.Find(s)
	if err != nil {
		return i, false
	}
	given, have := a.given(i), a.Names(i)
	for k, v := range a.Ref.Attributes {
		if given[k] != v && have[k] != v {
			return i, false
		}
	}
	return i, true
}

// Stock is the version of an image that is the vendor's own and that the stream
// does not list.
func (a Asker) Stock(s *bootstreams.Stream) (version string, ok bool) {
	return s.Data.Stock(a.platform(), a.Ref.Attributes)
}
