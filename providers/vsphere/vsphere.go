package vsphere

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"time"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/refit-dev/refit/providers/cloud"
)

// Config is a vCenter and the place of its images.
type Config struct {
	// Server is its address: https://vcenter.example.
	Server string `json:"server"`
	// CAFile has the authorities of its certificate in PEM; empty trusts the system's.
	CAFile string `json:"caFile,omitempty"`
	// Datacenter, Datastore, Pool and Folder as govc names them; empty is the only one.
	Datacenter string `json:"datacenter,omitempty"`
	Datastore  string `json:"datastore,omitempty"`
	Pool       string `json:"pool,omitempty"`
	// Network to which the networks of an OVA are connected; empty lets vCenter choose.
	Network string `json:"network,omitempty"`
	// Library is a content library: images are its items then, and the other places do not count.
	Library string `json:"library,omitempty"`
}

// Cloud is a vCenter.
type Cloud struct {
	Config Config
	// User and Password are read before each connection.
	Login func() (user, password string, err error)
	// Transport wraps the transport of each connection; nil for none.
	Transport func(http.RoundTripper) http.RoundTripper
}

// connection is a session with a vCenter.
type connection struct {
	*govmomi.Client
	finder *find.Finder
	config Config
}

// connect logs in. The caller calls close.
func (c *Cloud) connect(ctx context.Context) (*connection, error) {
	u, err := soap.ParseURL(c.Config.Server)
	if err != nil || u == nil {
		return nil, fmt.Errorf("server %q is no address: %w", c.Config.Server, err)
	}
	user, password, err := c.Login()
	if err != nil {
		return nil, err
	}
	client := soap.NewClient(u, false)
	if c.Config.CAFile != "" {
		if err := client.SetRootCAs(c.Config.CAFile); err != nil {
			return nil, err
		}
	}
	if c.Transport != nil {
		client.Transport = c.Transport(client.Transport)
	}
	vim, err := vim25.NewClient(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", c.Config.Server, err)
	}
	s := &connection{Client: &govmomi.Client{Client: vim, SessionManager: session.NewManager(vim)}, finder: find.NewFinder(vim), config: c.Config}
	if err := s.SessionManager.Login(ctx, url.UserPassword(user, password)); err != nil {
		return nil, fmt.Errorf("log in to %s: %w", c.Config.Server, err)
	}
	dc, err := s.finder.DatacenterOrDefault(ctx, c.Config.Datacenter)
	if err != nil {
		s.close(ctx)
		return nil, err
	}
	s.finder.SetDatacenter(dc)
	return s, nil
}

// closeTimeout bounds what is done after an error or a cancellation.
const closeTimeout = 10 * time.Second

func (s *connection) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	_ = s.Logout(ctx)
}

// Resolve reports the template, or the library's item, with the image's name.
func (c *Cloud) Resolve(ctx context.Context, w cloud.Wanted) (cloud.Answer, error) {
	if w.Name == "" {
		return cloud.Answer{}, errors.New("no name is configured: set image of this cloud")
	}
	s, err := c.connect(ctx)
	if err != nil {
		return cloud.Answer{}, err
	}
	defer s.close(ctx)
	if c.Config.Library != "" {
		l, err := s.openLibrary(ctx, c)
		if err != nil {
			return cloud.Answer{}, err
		}
		defer l.close(ctx)
		return l.resolve(ctx, w)
	}
	vm, err := s.machine(ctx, w.Name)
	if err != nil || vm == nil {
		return cloud.Answer{}, err
	}
	return describe(vm, w), nil
}

// machine returns a virtual machine or template with its configuration, nil if there is none.
func (s *connection) machine(ctx context.Context, name string) (*mo.VirtualMachine, error) {
	o, err := s.finder.VirtualMachine(ctx, name)
	if notFound := new(find.NotFoundError); errors.As(err, &notFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", name, err)
	}
	var vm mo.VirtualMachine
	if err := s.RetrieveOne(ctx, o.Reference(), []string{"name", "config"}, &vm); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if vm.Config == nil {
		return nil, fmt.Errorf("read %s: vCenter does not show its configuration", name)
	}
	return &vm, nil
}

// describe returns what a virtual machine is, as an image.
func describe(vm *mo.VirtualMachine, w cloud.Wanted) cloud.Answer {
	a := cloud.Answer{Names: map[string]string{"template": w.Name}}
	if t := vm.Config.CreateDate; t != nil {
		a.Created = *t
	}
	sum, _ := mark(vm)
	switch {
	case !vm.Config.Template:
		a.Problem = w.Name + " is a virtual machine and no template"
	case sum != "" && sum != w.Sum():
		a.Problem = fmt.Sprintf("template %s was made from a file with SHA-256 %s: use {version} in the name of images, or delete it", w.Name, sum)
	default:
		a.Exists, a.Unverified = true, sum == ""
	}
	return a
}

// Keys of refit's mark in the extra configuration of a virtual machine.
const (
	markSum   = "refit.dev.boot-image.sha256"
	markState = "refit.dev.boot-image.state"
	complete  = "complete"
	importing = "importing"
)

// mark returns refit's mark, empty if it has none.
func mark(vm *mo.VirtualMachine) (sum, state string) {
	for _, o := range vm.Config.ExtraConfig {
		switch v := o.GetOptionValue(); v.Key {
		case markSum:
			sum, _ = v.Value.(string)
		case markState:
			state, _ = v.Value.(string)
		}
	}
	return sum, state
}

func markOptions(sum, state string) []types.BaseOptionValue {
	return []types.BaseOptionValue{&types.OptionValue{Key: markSum, Value: sum}, &types.OptionValue{Key: markState, Value: state}}
}

// place is where imports go.
type place struct {
	folder    *object.Folder
	pool      *object.ResourcePool
	datastore *object.Datastore
}

func (s *connection) place(ctx context.Context, name string) (p place, err error) {
	dir := path.Dir(name)
	if dir == "." {
		dir = ""
	}
	if p.folder, err = s.finder.FolderOrDefault(ctx, dir); err != nil {
		return p, err
	}
	if p.pool, err = s.finder.ResourcePoolOrDefault(ctx, s.config.Pool); err != nil {
		return p, err
	}
	p.datastore, err = s.finder.DatastoreOrDefault(ctx, s.config.Datastore)
	return p, err
}
