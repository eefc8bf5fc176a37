package bootimage

import (
	"encoding/json"
	"fmt"
	"path"
	"sort"
	"strings"
)

// Upload is an image that is still a file. The administrator uploads it to the platform and
// marks it as uploaded before machines can start from it.
type Upload struct {
	Platform, Region string
	// Stream is the BootImageStream that lists it.
	Stream string
	// File name, and Version of the operating system in it.
	File, Version string
	// Location, SHA256 and Uncompressed (its SHA-256) are those of the stream.
	Location, SHA256, Uncompressed string
	// Payload is its name in the bundle with the stream; empty if no bundle has it.
	Payload string
	// Names are the attributes with which the machine manager names the image. The policy
	// fills them in; the others are empty.
	Names map[string]string
}

// shellQuote quotes a word for a shell.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// shellComment returns one comment line of a shell.
func shellComment(s string) string {
	return "# " + strings.NewReplacer("\n", " ", "\r", " ").Replace(s)
}

// Steps returns the commands that upload the image and mark it as uploaded. The user replaces
// words in capitals.
func (u Upload) Steps() []string {
	var steps []string
	file := u.File
	switch {
	case u.usesORC(): // the resource controller downloads and decompresses
	case u.Platform == "metal": // a web server serves the file itself
		steps = u.downloadSteps()
	default:
		steps, file = u.unpackSteps(u.downloadSteps())
	}
	steps = append(steps, u.uploadSteps(file)...)
	return append(steps, u.declareStep())
}

// usesORC: an object of OpenStack's resource controller names the image.
func (u Upload) usesORC() bool {
	_, named := u.Names["imageRef"]
	return u.Platform == "openstack" && named && u.Location != ""
}

// downloadSteps get the file and verify it.
func (u Upload) downloadSteps() []string {
	check := "echo " + shellQuote(u.SHA256+"  "+u.File) + " | sha256sum -c"
	switch {
	case u.Payload != "":
		return []string{fmt.Sprintf("refit bundle extract BUNDLE %s --output %s", shellQuote(u.Payload), shellQuote(u.File))}
	case u.Location != "":
		return []string{fmt.Sprintf("curl -fL -o %s %s && %s", shellQuote(u.File), shellQuote(u.Location), check)}
	}
	return []string{shellComment("bring the file here, then: " + check)}
}

// unpackSteps decompress the file, because platforms expect the image itself.
func (u Upload) unpackSteps(steps []string) (with []string, file string) {
	for suffix, tool := range map[string]string{".gz": "gzip -dk", ".xz": "xz -dk"} {
		plain, ok := strings.CutSuffix(u.File, suffix)
		if !ok {
			continue
		}
		step := tool + " " + shellQuote(u.File)
		if u.Uncompressed != "" {
			step += " && echo " + shellQuote(u.Uncompressed+"  "+plain) + " | sha256sum -c"
		}
		return append(steps, step), plain
	}
	return steps, u.File
}

// imageName is the policy's name, or a name with the version.
func (u Upload) imageName() string {
	for _, k := range []string{"template", "name", "imageRef"} {
		if v := u.Names[k]; v != "" {
			return v
		}
	}
	return strings.ToLower("refit-" + u.Version)
}

// uploadSteps upload the file to the platform.
func (u Upload) uploadSteps(file string) []string {
	name := u.imageName()
	switch u.Platform {
	case "vsphere":
		folder := ""
		if d := path.Dir(name); d != "." {
			folder = "-folder=" + shellQuote(d) + " "
		}
		return []string{fmt.Sprintf("govc import.ova %s-name=%s %s", folder, shellQuote(path.Base(name)), shellQuote(file)), "govc vm.markastemplate " + shellQuote(name)}
	case "openstack":
		if u.usesORC() {
			return []string{"kubectl apply -n NAMESPACE -f - <<'END'\n" + u.orcObject(name) + "\nEND"}
		}
		return []string{fmt.Sprintf("openstack image create --disk-format qcow2 --container-format bare --file %s %s", shellQuote(file), shellQuote(name))}
	case "nutanix":
		body, _ := json.Marshal(map[string]any{"spec": map[string]any{"name": name, "resources": map[string]any{"image_type": "DISK_IMAGE"}}, "metadata": map[string]any{"kind": "image"}})
		const images = "https://PRISM:9440/api/nutanix/v3/images"
		return []string{"curl -fu USER -H 'Content-Type: application/json' -d " + shellQuote(string(body)) + " " + images,
			"curl -fu USER -H 'Content-Type: application/octet-stream' -T " + shellQuote(file) + " " + images + "/UUID/file"}
	case "metal":
		return []string{shellComment(fmt.Sprintf("put %s where %s is served", shellQuote(u.File), shellQuote(u.Names["location"])))}
	}
	return []string{shellComment(fmt.Sprintf("upload %s to %s as %s", shellQuote(file), shellQuote(u.Platform), shellQuote(name)))}
}

// orcObject is the object from which OpenStack's resource controller downloads the image.
func (u Upload) orcObject(name string) string {
	download := map[string]any{"url": u.Location, "hash": map[string]any{"algorithm": "sha256", "value": u.SHA256}}
	for suffix, how := range map[string]string{".gz": "gz", ".xz": "xz"} {
		if strings.HasSuffix(u.File, suffix) {
			download["decompress"] = how
		}
	}
	o, _ := json.Marshal(map[string]any{"apiVersion": "openstack.k-orc.cloud/v1alpha1", "kind": "Image", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"cloudCredentialsRef": map[string]any{"cloudName": "CLOUD", "secretName": "SECRET"}, "managementPolicy": "managed",
			"resource": map[string]any{"content": map[string]any{"diskFormat": "qcow2", "download": download}}}})
	return string(o)
}

// declareStep marks the image as uploaded.
func (u Upload) declareStep() string {
	words := []string{"refit bootimage uploaded", shellQuote(u.Stream), shellQuote(u.SHA256)}
	if u.Region != "" {
		words = append(words, "--region", shellQuote(u.Region))
	}
	var open []string
	for k, v := range u.Names {
		if v == "" {
			open = append(open, k)
		}
	}
	sort.Strings(open)
	for _, k := range open {
		v := strings.ToUpper(k)
		if k == "template" || k == "name" || k == "imageRef" {
			v = u.imageName()
		}
		words = append(words, "--set", shellQuote(k+"="+v))
	}
	return strings.Join(words, " ")
}
