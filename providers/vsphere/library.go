package vsphere

import (
	"context"
	"fmt"
	"net/url"

	"github.com/vmware/govmomi/vapi/library"
	"github.com/vmware/govmomi/vapi/rest"

	"github.com/refit-dev/refit/providers/cloud"
)

// resolveItem reports an item of the content library.
func (s *connection) resolveItem(ctx context.Context, c *Cloud, name string) (cloud.Answer, error) {
	user, password, err := c.Login()
	if err != nil {
		return cloud.Answer{}, err
	}
	r := rest.NewClient(s.Client.Client)
	if c.Transport != nil {
		r.Transport = c.Transport(r.Transport)
	}
	if err := r.Login(ctx, url.UserPassword(user, password)); err != nil {
		return cloud.Answer{}, fmt.Errorf("log in to content libraries: %w", err)
	}
	defer func() { _ = r.Logout(context.WithoutCancel(ctx)) }()
	m := library.NewManager(r)
	lib, err := m.GetLibraryByName(ctx, s.config.Library)
	if err != nil {
		return cloud.Answer{}, fmt.Errorf("content library %s: %w", s.config.Library, err)
	}
	ids, err := m.FindLibraryItems(ctx, library.FindItem{LibraryID: lib.ID, Name: name})
	if err != nil || len(ids) == 0 {
		return cloud.Answer{}, err
	}
	if len(ids) > 1 {
		return cloud.Answer{Problem: fmt.Sprintf("library %s has %d items %s", lib.Name, len(ids), name)}, nil
	}
	item, err := m.GetLibraryItem(ctx, ids[0])
	if err != nil {
		return cloud.Answer{}, err
	}
	a := cloud.Answer{Exists: true, Unverified: true, Names: map[string]string{"library": lib.Name, "item": item.Name, "id": item.ID}}
	if item.CreationTime != nil {
		a.Created = *item.CreationTime
	}
	return a, nil
}
