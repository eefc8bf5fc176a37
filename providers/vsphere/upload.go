package vsphere

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/vmware/govmomi/nfc"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/ovf"
	"github.com/vmware/govmomi/ovf/importer"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/refit-dev/refit/providers/cloud"
)

// uploadSuffix ends the name of an import that is not complete.
const uploadSuffix = ".refit-upload"

// Upload imports an OVA as a template, or as an item of the content library.
func (c *Cloud) Upload(ctx context.Context, w cloud.Wanted, p cloud.Payload) error {
	s, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer s.close(ctx)
	if c.Config.Library != "" {
		l, err := s.openLibrary(ctx, c)
		if err != nil {
			return err
		}
		defer l.close(ctx)
		return l.upload(ctx, w, p)
	}
	if there, err := s.machine(ctx, w.Name); err != nil || there != nil {
		return errors.Join(err, occupied(there, w))
	}
	vm, err := s.leftover(ctx, w)
	if err != nil {
		return err
	}
	if vm == nil {
		if vm, err = s.importFile(ctx, w, p); err != nil {
			return err
		}
	}
	return s.finish(ctx, vm, w.Name)
}

// occupied returns why an image cannot have its name, nil if it is there already.
func occupied(there *mo.VirtualMachine, w cloud.Wanted) error {
	if there == nil {
		return nil
	}
	if a := describe(there, w); a.Problem != "" {
		return errors.New(a.Problem)
	}
	return nil
}

// leftover returns a complete import of this file that has no final name yet, nil if there is
// none. It destroys an incomplete one, or one of another file.
func (s *connection) leftover(ctx context.Context, w cloud.Wanted) (*mo.VirtualMachine, error) {
	name := w.Name + uploadSuffix
	vm, err := s.machine(ctx, name)
	if err != nil || vm == nil {
		return nil, err
	}
	sum, state := mark(vm)
	switch {
	case sum == "":
		return nil, fmt.Errorf("%s exists and refit did not create it: delete or rename it", name)
	case sum == w.Sum() && state == complete:
		return vm, nil
	}
	t, err := object.NewVirtualMachine(s.Client.Client, vm.Self).Destroy(ctx)
	if err == nil {
		err = t.Wait(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("delete the incomplete import %s (vCenter keeps its lease for some minutes): %w", name, err)
	}
	return nil, nil
}

// importFile imports the file under another name, and marks it as complete.
func (s *connection) importFile(ctx context.Context, w cloud.Wanted, p cloud.Payload) (*mo.VirtualMachine, error) {
	a, err := readArchive(p)
	if err != nil {
		return nil, err
	}
	at, err := s.place(ctx, w.Name)
	if err != nil {
		return nil, err
	}
	spec, err := s.importSpec(ctx, a, at, path.Base(w.Name)+uploadSuffix)
	if err != nil {
		return nil, err
	}
	config := spec.ImportSpec.(*types.VirtualMachineImportSpec)
	config.ConfigSpec.ExtraConfig = append(config.ConfigSpec.ExtraConfig, markOptions(w.Sum(), importing)...)
	lease, err := at.pool.ImportVApp(ctx, config, at.folder, nil)
	if err != nil {
		return nil, fmt.Errorf("import: %w", err)
	}
	if err := s.sendDisks(ctx, lease, spec.FileItem, a); err != nil {
		s.abort(ctx, lease)
		return nil, err
	}
	vm, err := s.machine(ctx, w.Name+uploadSuffix)
	if err != nil || vm == nil {
		return nil, errors.Join(errors.New("vCenter does not show what was imported"), err)
	}
	t, err := object.NewVirtualMachine(s.Client.Client, vm.Self).Reconfigure(ctx, types.VirtualMachineConfigSpec{ExtraConfig: markOptions(w.Sum(), complete)})
	if err == nil {
		err = t.Wait(ctx)
	}
	return vm, err
}

func (s *connection) abort(ctx context.Context, lease *nfc.Lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	_ = lease.Abort(ctx, nil)
}

// importSpec lets vCenter read the descriptor of an OVA.
func (s *connection) importSpec(ctx context.Context, a *archive, at place, name string) (*types.OvfCreateImportSpecResult, error) {
	env, err := importer.ReadEnvelope(a.descriptor)
	if err != nil {
		return nil, err
	}
	params := types.OvfCreateImportSpecParams{EntityName: name, DiskProvisioning: string(types.OvfCreateImportSpecParamsDiskProvisioningTypeThin)}
	if s.config.Network != "" && env.Network != nil {
		net, err := s.finder.Network(ctx, s.config.Network)
		if err != nil {
			return nil, err
		}
		for _, n := range env.Network.Networks {
			params.NetworkMapping = append(params.NetworkMapping, types.OvfNetworkMapping{Name: n.Name, Network: net.Reference()})
		}
	}
	spec, err := ovf.NewManager(s.Client.Client).CreateImportSpec(ctx, string(a.descriptor), at.pool, at.datastore, &params)
	if err != nil {
		return nil, fmt.Errorf("read the OVA's descriptor: %w", err)
	}
	if len(spec.Error) > 0 {
		return nil, fmt.Errorf("vCenter refuses the OVA: %s", spec.Error[0].LocalizedMessage)
	}
	if _, ok := spec.ImportSpec.(*types.VirtualMachineImportSpec); !ok {
		return nil, errors.New("the OVA has several virtual machines: a boot image has one")
	}
	return spec, nil
}

// sendDisks sends the files of an import and compares each with what vCenter received.
func (s *connection) sendDisks(ctx context.Context, lease *nfc.Lease, items []types.OvfFileItem, a *archive) error {
	info, err := lease.Wait(ctx, items)
	if err != nil {
		return fmt.Errorf("import: %w", err)
	}
	if len(info.Items) < len(items) {
		return fmt.Errorf("vCenter asks for %d of %d files of the OVA", len(info.Items), len(items))
	}
	updater := lease.StartUpdater(ctx, info)
	defer updater.Done()
	for _, item := range info.Items {
		if err := send(ctx, lease, item, a); err != nil {
			return fmt.Errorf("send %s: %w", item.Path, err)
		}
		if err := compare(ctx, lease, info, item, a.members[item.Path]); err != nil {
			return fmt.Errorf("%s: %w", item.Path, err)
		}
	}
	return lease.Complete(ctx)
}

func send(ctx context.Context, lease *nfc.Lease, item nfc.FileItem, a *archive) error {
	r, err := a.open(item.Path)
	if err != nil {
		return err
	}
	defer r.Close()
	return lease.Upload(ctx, item, r, soap.Upload{ContentLength: a.members[item.Path].size})
}

// compare compares the checksum that vCenter computed of a received file.
func compare(ctx context.Context, lease *nfc.Lease, info *nfc.LeaseInfo, item nfc.FileItem, m member) error {
	entries, err := lease.GetManifest(ctx)
	if err != nil {
		return fmt.Errorf("ask vCenter for its checksum: %w", err)
	}
	key := ""
	for _, d := range info.DeviceUrl {
		if d.ImportKey == item.DeviceId {
			key = d.Key
		}
	}
	for _, e := range entries {
		if e.Key != key {
			continue
		}
		got, want := e.Sha1, m.sha1
		if strings.EqualFold(e.ChecksumType, "sha256") {
			got, want = e.Checksum, m.sha256
		}
		if !strings.EqualFold(got, want) {
			return fmt.Errorf("vCenter received other bytes: its checksum is %s, the file has %s", got, want)
		}
		return nil
	}
	return errors.New("vCenter reports no checksum of what it received")
}

// finish makes a complete import a template with its final name.
func (s *connection) finish(ctx context.Context, vm *mo.VirtualMachine, name string) error {
	o := object.NewVirtualMachine(s.Client.Client, vm.Self)
	if !vm.Config.Template {
		if err := o.MarkAsTemplate(ctx); err != nil {
			return fmt.Errorf("mark as template: %w", err)
		}
	}
	t, err := o.Rename(ctx, path.Base(name))
	if err == nil {
		err = t.Wait(ctx)
	}
	if err != nil {
		return fmt.Errorf("rename to %s: %w", name, err)
	}
	return nil
}
