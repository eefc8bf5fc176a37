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

// ImageQuery is what decides which image of a stream a machine manager gets.
type ImageQuery struct {
	Choice *v1alpha1.MachineSelection
	Row    *machinekinds.ImageKind
	// Ref is its current image, Facts are what the object says about its machines.
	Ref   machinekinds.Reference
	Facts machinekinds.Facts
	// Architecture is that of all nodes of the cluster, empty if they differ.
	Architecture string
	// Region is the object's region if the image reference has none; RegionErr is why
	// it is unknown.
	Region    string
	RegionErr error
}

// Key returns the key of the image in a stream.
func (a ImageQuery) Key() (bootstream.Key, error) {
	k := bootstream.Key{OSStream: cmp.Or(a.Facts.OSStream, a.Choice.OSStream), Platform: a.platform(), Region: a.region(), Variant: a.Choice.Variant}
	if k.Platform == "" {
		return k, fmt.Errorf("its platform is unknown: set platform in the policy")
	}
	if a.Facts.ArchitectureErr != nil {
		return k, a.Facts.ArchitectureErr
	}
	spelled := cmp.Or(a.Facts.Architecture, a.Choice.Architecture, a.Architecture)
	if spelled == "" {
		return k, fmt.Errorf("its architecture is unknown, and the cluster's nodes have several: set architecture in the policy, or kubernetes.io/arch on the object")
	}
	arch, ok := bootstream.Architecture(spelled)
	if !ok {
		return k, fmt.Errorf("architecture %q is not known", spelled)
	}
	k.Architecture = arch
	return k, nil
}

func (a ImageQuery) platform() string { return cmp.Or(a.Row.Platform, a.Choice.Platform) }

// region prefers the object's own region over the policy's.
func (a ImageQuery) region() string { return cmp.Or(a.Ref.Region, a.Choice.Region, a.Region) }

// Find returns the image in a stream. Of several marketplace offers it chooses the one that the
// object uses now, in another version.
func (a ImageQuery) Find(s *bootstreams.Stream) (bootstream.Image, error) {
	k, err := a.Key()
	if err != nil {
		return bootstream.Image{}, err
	}
	i, err := s.Data.Find(s.Data.ChooseOffer(k, a.Ref.Attributes, a.Ref.Text))
	if err != nil && k.Region == "" && a.RegionErr != nil {
		return i, fmt.Errorf("%w; its region is not known: %w", err, a.RegionErr)
	}
	return i, err
}

// Names returns the attributes by which the platform knows an image: from the stream, the
// policy, and the upload of a file.
func (a ImageQuery) Names(i bootstream.Image) map[string]string {
	out := a.namesBeforeUpload(i)
	if u, ok := i.UploadForRegion(a.region()); ok {
		maps.Copy(out, u.Attributes)
	}
	return out
}

// namesBeforeUpload returns the attributes from the stream and the policy.
func (a ImageQuery) namesBeforeUpload(i bootstream.Image) map[string]string {
	out := maps.Clone(i.Attributes)
	words := strings.NewReplacer("{version}", i.Version)
	if f, ok := i.DiskFile(); ok {
		words = strings.NewReplacer("{version}", i.Version, "{file}", f.Base())
	}
	for k, v := range a.Choice.Attributes {
		out[k] = words.Replace(v)
	}
	return out
}

// Upload returns what a person must upload to the platform before machines can start from an
// image, nil if nothing. needs are the attributes by which the object names the image. complete
// is false if not all of them are known before the upload.
func (a ImageQuery) Upload(stream string, i bootstream.Image, needs []string) (u *bootimage.Upload, complete bool) {
	f, isFile := i.DiskFile()
	_, done := i.UploadForRegion(a.region())
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

// Recognise finds the object's current image in a stream, by its own names or by those that the
// policy and an upload give it.
func (a ImageQuery) Recognise(s *bootstreams.Stream) (bootstream.Image, bool) {
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
	given, have := a.namesBeforeUpload(i), a.Names(i)
	for k, v := range a.Ref.Attributes {
		if given[k] != v && have[k] != v {
			return i, false
		}
	}
	return i, true
}

// Stock returns the version of an image that is the vendor's own and that the stream does not
// list.
func (a ImageQuery) Stock(s *bootstreams.Stream) (version string, ok bool) {
	return s.Data.RecogniseStock(a.platform(), a.Ref.Attributes)
}
