package bootimage

import (
	"encoding/json"
	"fmt"
	"path"
	"sort"
	"strings"
)

// Upload is an image that is only a file yet: somebody brings it to its platform
// and says so, before machines can start from it.
type Upload struct {
	Platform, Region string
	// Stream is the BootImageStream that lists it.
	Stream string
	// File is its name, Version that of the operating system in it.
	File, Version string
	// Location, SHA256 and Uncompressed as the stream has them.
	Location, SHA256, Uncompressed string
	// Payload is its name in the bundle that brought the stream; empty if it is in
	// none.
	Payload string
	// Names are the attributes that the machine manager names it by, as far as the
	// policy gives them; those that it does not give are empty.
	Names map[string]string
}

// quote a word for a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// comment is one line that a shell passes over.
func comment(s string) string { return "# " + strings.NewReplacer("\n", " ", "\r", " ").Replace(s) }

// Steps are the commands that bring it there and say so. Words in capitals are to
// be filled in.
func (u Upload) Steps() []string {
	var steps []string
	file := u.File
	switch {
	case u.orcs(): // it fetches and unpacks by itself
	case u.Platform == "metal": // it is served as it is
		steps = u.get()
	default:
		steps, file = u.unpack(u.get())
	}
	steps = append(steps, u.bring(file)...)
	return append(steps, u.declare())
}

// orcs: it is named by an object of OpenStack's resource controller.
func (u Upload) orcs() bool {
	_, named := u.Names["imageRef"]
	return u.Platform == "openstack" && named && u.Location != ""
}

// get the file.
func (u Upload) get() []string {
	check := "echo " + quote(u.SHA256+"  "+u.File) + " | sha256sum -c"
	switch {
	case u.Payload != "":
		return []string{fmt.Sprintf("refit bundle extract BUNDLE %s --output %s", quote(u.Payload), quote(u.File))}
	case u.Location != "":
		return []string{fmt.Sprintf("curl -fL -o %s %s && %s", quote(u.File), quote(u.Location), check)}
	}
	return []string{comment("bring the file here, then: " + check)}
}

// unpack what is compressed: platforms take the image itself.
func (u Upload) unpack(steps []string) (with []string, file string) {
	for suffix, tool := range map[string]string{".gz": "gzip -dk", ".xz": "xz -dk"} {
		plain, ok := strings.CutSuffix(u.File, suffix)
		if !ok {
			continue
		}
		step := tool + " " + quote(u.File)
		if u.Uncompressed != "" {
			step += " && echo " + quote(u.Uncompressed+"  "+plain) + " | sha256sum -c"
		}
		return append(steps, step), plain
	}
	return steps, u.File
}

// name that it gets: the one that the policy gives, else one made of its version.
func (u Upload) name() string {
	for _, k := range []string{"template", "name", "imageRef"} {
		if v := u.Names[k]; v != "" {
			return v
		}
	}
	return strings.ToLower("refit-" + u.Version)
}

// bring it to the platform.
func (u Upload) bring(file string) []string {
	name := u.name()
	switch u.Platform {
	case "vsphere":
		folder := ""
		if d := path.Dir(name); d != "." {
			folder = "-folder=" + quote(d) + " "
		}
		return []string{fmt.Sprintf("govc import.ova %s-name=%s %s", folder, quote(path.Base(name)), quote(file)), "govc vm.markastemplate " + quote(name)}
	case "openstack":
		if u.orcs() {
			return []string{"kubectl apply -n NAMESPACE -f - <<'END'\n" + u.orc(name) + "\nEND"}
		}
		return []string{fmt.Sprintf("openstack image create --disk-format qcow2 --container-format bare --file %s %s", quote(file), quote(name))}
	case "nutanix":
		body, _ := json.Marshal(map[string]any{"spec": map[string]any{"name": name, "resources": map[string]any{"image_type": "DISK_IMAGE"}}, "metadata": map[string]any{"kind": "image"}})
		const images = "https://PRISM:9440/api/nutanix/v3/images"
		return []string{"curl -fu USER -H 'Content-Type: application/json' -d " + quote(string(body)) + " " + images,
			"curl -fu USER -H 'Content-Type: application/octet-stream' -T " + quote(file) + " " + images + "/UUID/file"}
	case "metal":
		return []string{comment(fmt.Sprintf("put %s where %s is served", quote(u.File), quote(u.Names["location"])))}
	}
	return []string{comment(fmt.Sprintf("upload %s to %s as %s", quote(file), quote(u.Platform), quote(name)))}
}

// orc is the object with which OpenStack's resource controller fetches the image.
func (u Upload) orc(name string) string {
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

// declare that it is there.
func (u Upload) declare() string {
	words := []string{"refit bootimage uploaded", quote(u.Stream), quote(u.SHA256)}
	if u.Region != "" {
		words = append(words, "--region", quote(u.Region))
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
			v = u.name()
		}
		words = append(words, "--set", quote(k+"="+v))
	}
	return strings.Join(words, " ")
}
