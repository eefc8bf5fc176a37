package bootstream

import (
	"encoding/json"
	"fmt"
	"sort"
	"time"
)

// The parts of CoreOS stream metadata that are read.
type coreos struct {
	Stream   string `json:"stream"`
	Metadata struct {
		LastModified string `json:"last-modified"`
	} `json:"metadata"`
	Architectures map[string]coreosArchitecture `json:"architectures"`
}

type coreosArchitecture struct {
	Artifacts map[string]struct {
		Release string                       `json:"release"`
		Formats map[string]map[string]*asset `json:"formats"`
	} `json:"artifacts"`
	Images     coreosImages     `json:"images"`
	Extensions coreosExtensions `json:"rhel-coreos-extensions"`
}

type asset struct {
	Location           string `json:"location"`
	Signature          string `json:"signature"`
	SHA256             string `json:"sha256"`
	UncompressedSHA256 string `json:"uncompressed-sha256"`
}

type coreosImages struct {
	AWS      *regional `json:"aws"`
	Aliyun   *regional `json:"aliyun"`
	IBMCloud *objects  `json:"ibmcloud"`
	PowerVS  *objects  `json:"powervs"`
	GCP      *struct {
		Release string `json:"release"`
		Project string `json:"project"`
		Family  string `json:"family"`
		Name    string `json:"name"`
	} `json:"gcp"`
	KubeVirt *struct {
		Release   string `json:"release"`
		Image     string `json:"image"`
		DigestRef string `json:"digest-ref"`
	} `json:"kubevirt"`
}

type regional struct {
	Regions map[string]struct {
		Release string `json:"release"`
		Image   string `json:"image"`
	} `json:"regions"`
}

type objects struct {
	Regions map[string]struct {
		Release string `json:"release"`
		Object  string `json:"object"`
		Bucket  string `json:"bucket"`
		URL     string `json:"url"`
	} `json:"regions"`
}

type coreosExtensions struct {
	AzureDisk *struct {
		Release string `json:"release"`
		URL     string `json:"url"`
	} `json:"azure-disk"`
	Marketplace struct {
		Azure map[string]map[string]*struct {
			Publisher string `json:"publisher"`
			Offer     string `json:"offer"`
			SKU       string `json:"sku"`
			Version   string `json:"version"`
		} `json:"azure"`
	} `json:"marketplace"`
}

// platforms by the name that stream metadata gives them, where ours differs.
var platforms = map[string]string{"vmware": "vsphere"}

func platform(coreos string) string {
	if p, ok := platforms[coreos]; ok {
		return p
	}
	return coreos
}

func parseCoreOS(data []byte, osStream string) (*Stream, error) {
	var in coreos
	if err := json.Unmarshal(data, &in); err != nil {
		return nil, fmt.Errorf("boot image stream: CoreOS stream metadata: %w", err)
	}
	s := &Stream{Name: in.Stream, OwnReleases: true}
	if in.Metadata.LastModified != "" {
		at, err := time.Parse(time.RFC3339, in.Metadata.LastModified)
		if err != nil {
			return nil, fmt.Errorf("boot image stream: metadata.last-modified: %w", err)
		}
		s.Modified = at
	}
	for spelled, a := range in.Architectures {
		arch, ok := Architecture(spelled)
		if !ok {
			continue // a future architecture, which no Key can select
		}
		if err := a.named(); err != nil {
			return nil, fmt.Errorf("boot image stream: architectures.%s: %w", spelled, err)
		}
		r := reader{into: s, key: Key{OSStream: osStream, Architecture: arch}}
		r.images(&a.Images)
		r.extensions(&a.Extensions)
		r.artifacts(&a)
	}
	return s.finish()
}

// named refuses an empty name of a platform, a format or a region: no Key can select such an
// image, and the plain list cannot hold it.
func (a *coreosArchitecture) named() error {
	for platform, artifact := range a.Artifacts {
		if _, empty := artifact.Formats[""]; empty || platform == "" {
			return fmt.Errorf("artifacts: a platform or format has an empty name")
		}
	}
	for name, cloud := range map[string]*regional{"aws": a.Images.AWS, "aliyun": a.Images.Aliyun} {
		if cloud.hasRegion("") {
			return fmt.Errorf("images.%s: a region has an empty name", name)
		}
	}
	for name, cloud := range map[string]*objects{"ibmcloud": a.Images.IBMCloud, "powervs": a.Images.PowerVS} {
		if cloud.hasRegion("") {
			return fmt.Errorf("images.%s: a region has an empty name", name)
		}
	}
	return nil
}

func (r *regional) hasRegion(name string) bool {
	if r == nil {
		return false
	}
	_, ok := r.Regions[name]
	return ok
}

func (o *objects) hasRegion(name string) bool {
	if o == nil {
		return false
	}
	_, ok := o.Regions[name]
	return ok
}

// reader collects the images of one architecture.
type reader struct {
	into *Stream
	key  Key
}

// add leaves out what has no name at all.
func (r *reader) add(platform, region, variant, version string, attributes map[string]string) {
	for k, v := range attributes {
		if v == "" {
			delete(attributes, k)
		}
	}
	if len(attributes) == 0 {
		return
	}
	k := r.key
	k.Platform, k.Region, k.Variant = platform, region, variant
	r.into.Images = append(r.into.Images, Image{Key: k, Version: version, Attributes: attributes})
}

func (r *reader) images(in *coreosImages) {
	for name, regions := range map[string]*regional{"aws": in.AWS, "aliyun": in.Aliyun} {
		if regions == nil {
			continue
		}
		for region, i := range regions.Regions {
			r.add(name, region, "", i.Release, map[string]string{"image": i.Image})
		}
	}
	for name, regions := range map[string]*objects{"ibmcloud": in.IBMCloud, "powervs": in.PowerVS} {
		if regions == nil {
			continue
		}
		for region, i := range regions.Regions {
			r.add(name, region, "", i.Release, map[string]string{"object": i.Object, "bucket": i.Bucket, "url": i.URL})
		}
	}
	if i := in.GCP; i != nil && i.Project != "" && i.Name != "" {
		r.add("gcp", "", "", i.Release, map[string]string{"project": i.Project, "family": i.Family, "name": i.Name,
			"selfLink": "projects/" + i.Project + "/global/images/" + i.Name})
	}
	if i := in.KubeVirt; i != nil {
		r.add("kubevirt", "", "", i.Release, map[string]string{"image": i.Image, "digestRef": i.DigestRef})
	}
}

func (r *reader) extensions(in *coreosExtensions) {
	if d := in.AzureDisk; d != nil {
		r.add("azure", "", "disk", d.Release, map[string]string{"url": d.URL})
	}
	for plan, generations := range in.Marketplace.Azure {
		for generation, i := range generations {
			if i == nil {
				continue
			}
			r.add("azure", "", plan+"."+generation, i.Version, map[string]string{"publisher": i.Publisher, "offer": i.Offer, "sku": i.SKU, "version": i.Version,
				"type": planType(plan)})
		}
	}
}

// planType is how OpenShift's machine sets call an offer.
func planType(plan string) string {
	if plan == freePlan {
		return "MarketplaceNoPlan"
	}
	return "MarketplaceWithPlan"
}

// artifacts are files. Those of a platform that has an image already in a cloud
// are left out: who starts machines there cannot use a file.
func (r *reader) artifacts(in *coreosArchitecture) {
	cloud := map[string]bool{}
	for _, i := range r.into.Images {
		if i.Key.Architecture == r.key.Architecture && i.Key.OSStream == r.key.OSStream {
			cloud[i.Key.Platform] = true
		}
	}
	names := make([]string, 0, len(in.Artifacts))
	for name := range in.Artifacts {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if p := platform(name); !cloud[p] {
			for format, parts := range in.Artifacts[name].Formats {
				r.add(p, "", format, in.Artifacts[name].Release, assets(parts))
			}
		}
	}
}

// assets are the files of a format: those of its disk by their plain names,
// those of others (kernel, initramfs, rootfs) behind the name of the part.
func assets(parts map[string]*asset) map[string]string {
	out := map[string]string{}
	for part, a := range parts {
		if a == nil {
			continue
		}
		prefix := part + "."
		if part == "disk" {
			prefix = ""
		}
		for k, v := range map[string]string{"location": a.Location, "signature": a.Signature, "sha256": a.SHA256, "uncompressedSha256": a.UncompressedSHA256} {
			out[prefix+k] = v
		}
	}
	return out
}

// Keys of OpenShift's ConfigMap coreos-bootimages.
const (
	keyStream  = "stream"
	keyStreams = "streams"
	keyRelease = "releaseVersion"
)

// ParseConfigMap reads the data of a ConfigMap: OpenShift's keys (stream, streams,
// releaseVersion), or the one key that is named.
func ParseConfigMap(data map[string]string, key string) (*Stream, error) {
	if key != "" && key != keyStream {
		text, ok := data[key]
		if !ok {
			return nil, fmt.Errorf("boot image stream: the ConfigMap has no key %s", key)
		}
		return Parse([]byte(text))
	}
	text, ok := data[keyStream]
	if !ok {
		return nil, fmt.Errorf("boot image stream: the ConfigMap has no key %s", keyStream)
	}
	s, err := Parse([]byte(text))
	if err != nil {
		return nil, err
	}
	if r := data[keyRelease]; r != "" {
		s.Release = r
	}
	if data[keyStreams] == "" {
		return s, nil
	}
	return s.addStreams(data[keyStreams])
}

// addStreams adds what stands under the names of OS streams.
func (s *Stream) addStreams(text string) (*Stream, error) {
	if len(text) > Largest {
		return nil, fmt.Errorf("boot image stream: key %s is too large", keyStreams)
	}
	var streams map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &streams); err != nil {
		return nil, fmt.Errorf("boot image stream: key %s: %w", keyStreams, err)
	}
	for name, raw := range streams {
		one, err := parseCoreOS(raw, name)
		if err != nil {
			return nil, fmt.Errorf("OS stream %s: %w", name, err)
		}
		s.Images = append(s.Images, one.Images...)
	}
	return s.finish()
}
