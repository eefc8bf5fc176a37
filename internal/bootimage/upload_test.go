package bootimage_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/internal/bootimage"
)

// For a platform without public images refit prints the exact commands.
func TestUploadSteps(t *testing.T) {
	t.Parallel()
	sum, inner := strings.Repeat("a", 64), strings.Repeat("b", 64)
	for name, tc := range map[string]struct {
		in   bootimage.Upload
		want []string
	}{
		"an OVA of a bundle, under a name of the policy": {bootimage.Upload{Platform: "vsphere", Stream: "s", File: "rhcos.ova", Version: "9.6.1", SHA256: sum, Payload: "boot-image.vsphere.amd64.ova", Names: map[string]string{"template": "/dc1/vm/rhcos-9.6.1"}}, []string{
			"refit bundle extract BUNDLE 'boot-image.vsphere.amd64.ova' --output 'rhcos.ova'",
			"govc import.ova -folder='/dc1/vm' -name='rhcos-9.6.1' 'rhcos.ova'",
			"govc vm.markastemplate '/dc1/vm/rhcos-9.6.1'",
			"refit bootimage uploaded 's' '" + sum + "'"}},
		"a compressed disk of an address, without a name": {bootimage.Upload{Platform: "openstack", Region: "hall-2", Stream: "s", File: "r.qcow2.gz", Version: "9.6.1", Location: "https://example.test/r.qcow2.gz", SHA256: sum, Uncompressed: inner, Names: map[string]string{"name": ""}}, []string{
			"curl -fL -o 'r.qcow2.gz' 'https://example.test/r.qcow2.gz' && echo '" + sum + "  r.qcow2.gz' | sha256sum -c",
			"gzip -dk 'r.qcow2.gz' && echo '" + inner + "  r.qcow2' | sha256sum -c",
			"openstack image create --disk-format qcow2 --container-format bare --file 'r.qcow2' 'refit-9.6.1'",
			"refit bootimage uploaded 's' '" + sum + "' --region 'hall-2' --set 'name=refit-9.6.1'"}},
		"an object of OpenStack's resource controller": {bootimage.Upload{Platform: "openstack", Stream: "s", File: "r.qcow2.gz", Version: "9.6.1", Location: "https://example.test/r.qcow2.gz", SHA256: sum, Names: map[string]string{"imageRef": "rhcos"}}, []string{
			"kubectl apply -n NAMESPACE -f - <<'END'\n" + `{"apiVersion":"openstack.k-orc.cloud/v1alpha1","kind":"Image","metadata":{"name":"rhcos"},"spec":{"cloudCredentialsRef":{"cloudName":"CLOUD","secretName":"SECRET"},"managementPolicy":"managed","resource":{"content":{"diskFormat":"qcow2","download":{"decompress":"gz","hash":{"algorithm":"sha256","value":"` + sum + `"},"url":"https://example.test/r.qcow2.gz"}}}}}` + "\nEND",
			"refit bootimage uploaded 's' '" + sum + "'"}},
		"Prism, by an identifier that it gives": {bootimage.Upload{Platform: "nutanix", Stream: "s", File: "r.qcow2", Version: "9.6.1", SHA256: sum, Names: map[string]string{"id": ""}}, []string{
			"# bring the file here, then: echo '" + sum + "  r.qcow2' | sha256sum -c",
			`curl -fu USER -H 'Content-Type: application/json' -d '{"metadata":{"kind":"image"},"spec":{"name":"refit-9.6.1","resources":{"image_type":"DISK_IMAGE"}}}' https://PRISM:9440/api/nutanix/v3/images`,
			"curl -fu USER -H 'Content-Type: application/octet-stream' -T 'r.qcow2' https://PRISM:9440/api/nutanix/v3/images/UUID/file",
			"refit bootimage uploaded 's' '" + sum + "' --set 'id=ID'"}},
		"a web server for bare metal": {bootimage.Upload{Platform: "metal", Stream: "s", File: "r.raw.xz", Version: "9.6.1", Payload: "p", SHA256: sum, Names: map[string]string{"location": "http://10.0.0.1/r.raw.xz", "sha256": sum}}, []string{
			"refit bundle extract BUNDLE 'p' --output 'r.raw.xz'",
			"# put 'r.raw.xz' where 'http://10.0.0.1/r.raw.xz' is served",
			"refit bootimage uploaded 's' '" + sum + "'"}},
		"another platform": {bootimage.Upload{Platform: "proxmox", Stream: "s", File: "r.raw", Version: "9.6.1", Payload: "p", SHA256: sum, Names: map[string]string{"template": ""}}, []string{
			"refit bundle extract BUNDLE 'p' --output 'r.raw'",
			"# upload 'r.raw' to 'proxmox' as 'refit-9.6.1'",
			"refit bootimage uploaded 's' '" + sum + "' --set 'template=refit-9.6.1'"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, tc.in.Steps()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What a stream says is data for the shell, never a command.
func TestUploadStepsAreQuoted(t *testing.T) {
	t.Parallel()
	evil := "x'; touch pwned; echo '$(touch pwned)\ntouch pwned\n"
	for _, platform := range []string{"vsphere", "openstack", "nutanix", "metal", "proxmox"} {
		for _, payload := range []string{"", evil} {
			u := bootimage.Upload{Platform: platform, Stream: evil, Region: evil, File: evil, Version: evil, Location: "https://e.test/" + evil, SHA256: evil, Uncompressed: evil, Payload: payload,
				Names: map[string]string{"template": evil, "location": evil, "id": ""}}
			for _, step := range u.Steps() {
				dir := t.TempDir()
				// every program is one that says nothing
				cmd := exec.Command("/bin/sh", "-c", "curl() { :; }\nrefit() { :; }\ngovc() { :; }\nopenstack() { :; }\ngzip() { :; }\nsha256sum() { :; }\n"+step)
				cmd.Dir = dir
				_ = cmd.Run()
				if left, err := exec.Command("ls", dir).Output(); err != nil || len(left) > 0 {
					t.Errorf("%s: %q makes %s (%v)", platform, step, left, err)
				}
			}
		}
	}
}
