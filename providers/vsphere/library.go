package vsphere

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/vmware/govmomi/vapi/library"
	"github.com/vmware/govmomi/vapi/rest"

	"github.com/refit-dev/refit/providers/cloud"
)

// contentLibrary is a session with a content library.
type contentLibrary struct {
	*library.Manager
	client *rest.Client
	lib    *library.Library
}

// openLibrary logs in to the content libraries. The caller calls close.
func (s *connection) openLibrary(ctx context.Context, c *Cloud) (*contentLibrary, error) {
	user, password, err := c.Login()
	if err != nil {
		return nil, err
	}
	r := rest.NewClient(s.Client.Client)
	if c.Transport != nil {
		r.Transport = c.Transport(r.Transport)
	}
	if err := r.Login(ctx, url.UserPassword(user, password)); err != nil {
		return nil, fmt.Errorf("log in to content libraries: %w", err)
	}
	l := &contentLibrary{Manager: library.NewManager(r), client: r}
	if l.lib, err = l.GetLibraryByName(ctx, s.config.Library); err != nil {
		l.close(ctx)
		return nil, fmt.Errorf("content library %s: %w", s.config.Library, err)
	}
	return l, nil
}

func (l *contentLibrary) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	_ = l.client.Logout(ctx)
}

// items are those with a name.
func (l *contentLibrary) items(ctx context.Context, name string) ([]library.Item, error) {
	ids, err := l.FindLibraryItems(ctx, library.FindItem{LibraryID: l.lib.ID, Name: name})
	if err != nil {
		return nil, fmt.Errorf("find item %s: %w", name, err)
	}
	var out []library.Item
	for _, id := range ids {
		i, err := l.GetLibraryItem(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("read item %s: %w", name, err)
		}
		out = append(out, *i)
	}
	return out, nil
}

// resolve reports the item of the library with the image's name.
func (l *contentLibrary) resolve(ctx context.Context, w cloud.Wanted) (cloud.Answer, error) {
	items, err := l.items(ctx, w.Name)
	if err != nil || len(items) == 0 {
		return cloud.Answer{}, err
	}
	if len(items) > 1 {
		return cloud.Answer{Problem: fmt.Sprintf("library %s has %d items %s", l.lib.Name, len(items), w.Name)}, nil
	}
	i := items[0]
	a := cloud.Answer{Names: map[string]string{"library": l.lib.Name, "item": i.Name, "id": i.ID}}
	if i.CreationTime != nil {
		a.Created = *i.CreationTime
	}
	sum := itemSum(i)
	if sum != "" && sum != w.Sum() {
		a.Problem = fmt.Sprintf("item %s was made from a file with SHA-256 %s: use {version} in the name of images, or delete it", w.Name, sum)
		return a, nil
	}
	a.Exists, a.Unverified = true, sum == ""
	return a, nil
}

// itemMark begins the description of an item that refit uploaded; the SHA-256 of the file follows.
const itemMark = "refit boot image, SHA-256 "

// itemSum is the SHA-256 in refit's mark, empty if an item has none.
func itemSum(i library.Item) string {
	if i.Description == nil {
		return ""
	}
	sum, ok := strings.CutPrefix(*i.Description, itemMark)
	if !ok {
		return ""
	}
	return sum
}
