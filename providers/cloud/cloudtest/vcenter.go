package cloudtest

import (
	"archive/tar"
	"bytes"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"

	"github.com/vmware/govmomi/simulator"
	_ "github.com/vmware/govmomi/vapi/simulator" // content libraries
)

// Pool is a resource pool of a simulated vCenter.
const Pool = "/DC0/host/DC0_C0/Resources"

// VCenter starts a simulated vCenter with TLS: its URL, the file of its authority, and its login.
func VCenter(t *testing.T) (server, caFile string, user *url.Userinfo) {
	t.Helper()
	m := simulator.VPX()
	m.Machine = 1
	if err := m.Create(); err != nil {
		t.Fatal(err)
	}
	m.Service.TLS = new(tls.Config)
	m.Service.RegisterEndpoints = true
	s := m.Service.NewServer()
	t.Cleanup(func() { s.Close(); m.Remove() })
	caFile, err := s.CertificateFile()
	if err != nil {
		t.Fatal(err)
	}
	address := *s.URL
	address.User = nil
	return address.String(), caFile, s.URL.User
}

const descriptor = `<Envelope xmlns="http://schemas.dmtf.org/ovf/envelope/1" xmlns:ovf="http://schemas.dmtf.org/ovf/envelope/1"
 xmlns:rasd="http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_ResourceAllocationSettingData" xmlns:vssd="http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_VirtualSystemSettingData">
<References><File ovf:href="disk.vmdk" ovf:id="file1" ovf:size="%d"/></References>
<DiskSection><Info>disks</Info><Disk ovf:capacity="16" ovf:capacityAllocationUnits="byte * 2^30" ovf:diskId="vmdisk1" ovf:fileRef="file1" ovf:format="http://www.vmware.com/interfaces/specifications/vmdk.html#streamOptimized"/></DiskSection>
<NetworkSection><Info>networks</Info><Network ovf:name="VM Network"><Description>net</Description></Network></NetworkSection>
<VirtualSystem ovf:id="rhcos"><Info>a machine</Info><Name>rhcos</Name>
<OperatingSystemSection ovf:id="80"><Info>os</Info></OperatingSystemSection>
<VirtualHardwareSection><Info>hardware</Info>
<System><vssd:ElementName>Virtual Hardware Family</vssd:ElementName><vssd:InstanceID>0</vssd:InstanceID><vssd:VirtualSystemType>vmx-13</vssd:VirtualSystemType></System>
<Item><rasd:ElementName>2 cpus</rasd:ElementName><rasd:InstanceID>1</rasd:InstanceID><rasd:ResourceType>3</rasd:ResourceType><rasd:VirtualQuantity>2</rasd:VirtualQuantity></Item>
<Item><rasd:AllocationUnits>byte * 2^20</rasd:AllocationUnits><rasd:ElementName>memory</rasd:ElementName><rasd:InstanceID>2</rasd:InstanceID><rasd:ResourceType>4</rasd:ResourceType><rasd:VirtualQuantity>4096</rasd:VirtualQuantity></Item>
<Item><rasd:Address>0</rasd:Address><rasd:ElementName>scsi</rasd:ElementName><rasd:InstanceID>3</rasd:InstanceID><rasd:ResourceSubType>VirtualSCSI</rasd:ResourceSubType><rasd:ResourceType>6</rasd:ResourceType></Item>
<Item><rasd:AddressOnParent>0</rasd:AddressOnParent><rasd:ElementName>disk</rasd:ElementName><rasd:HostResource>ovf:/disk/vmdisk1</rasd:HostResource><rasd:InstanceID>4</rasd:InstanceID><rasd:Parent>3</rasd:Parent><rasd:ResourceType>17</rasd:ResourceType></Item>
</VirtualHardwareSection></VirtualSystem></Envelope>`

// OVA is an OVA with a disk of random bytes.
func OVA(t *testing.T, disk string, size int) []byte {
	t.Helper()
	random := make([]byte, size)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(random)
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range []struct {
		name string
		data []byte
	}{{"rhcos.ovf", fmt.Appendf(nil, strings.ReplaceAll(descriptor, "disk.vmdk", disk), size)}, {disk, random}} {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.data))}); err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write(f.data)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
