package cloud

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/refit-dev/refit/internal/bootimage/bootstream"
)

// Asker asks the sites about a stream, again and again. It is not for several goroutines.
type Asker struct {
	Sites []Site
	Files Files
	Now   func() time.Time
	// Log reports what a person may want to follow: the start and the end of an upload.
	Log func(event string, keysAndValues ...any)

	last map[question]Report
}

// question identifies an image in a site across passes. The version and the attributes are part
// of it, so that the answer for an old image is not the answer for the next one.
type question struct {
	site  int
	key   bootstream.Key
	names string
}

func (a *Asker) question(site int, i bootstream.Image) question {
	return question{site, i.Key, fmt.Sprint(i.Version, i.Attributes)}
}

// askTimeout bounds the question about one image.
const askTimeout = time.Minute

// Ask asks every site about every image, once.
func (a *Asker) Ask(ctx context.Context, s *bootstream.Stream) []Report {
	var out []Report
	answers := map[question]Report{}
	for n, site := range a.Sites {
		for _, i := range s.Images {
			w, ok := site.wants(i)
			if !ok {
				continue
			}
			q := a.question(n, i)
			answers[q] = a.ask(ctx, site, w, a.last[q])
			out = append(out, answers[q])
		}
	}
	a.last = answers
	return out
}

// ask asks one site; the last answer stays while the site cannot be reached.
func (a *Asker) ask(ctx context.Context, site Site, w Wanted, last Report) Report {
	r := Report{Site: site, Image: w.Image}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer, err := site.Cloud.Resolve(ctx, w)
	if err != nil {
		r.Answer, r.At, r.Err = last.Answer, last.At, err
		return r
	}
	r.Answer, r.At = answer, a.Now()
	return r
}

// Upload uploads the files that are missing in sites with upload set, and returns the reports
// with the new answers. A failed upload does not stop the others.
func (a *Asker) Upload(ctx context.Context, reports []Report) []Report {
	out := make([]Report, 0, len(reports))
	for _, r := range reports {
		if r.due() && ctx.Err() == nil {
			r = a.uploadOne(ctx, r)
			a.remember(r)
		}
		out = append(out, r)
	}
	return out
}

// due reports whether an upload is missing: the cloud answered that it does not have the file.
func (r Report) due() bool {
	f, isFile := r.Image.DiskFile()
	return r.Site.Upload && isFile && f.SHA256 != "" && !r.At.IsZero() && r.Err == nil && !r.Answer.Exists && r.Answer.Problem == ""
}

func (a *Asker) remember(r Report) {
	for n, site := range a.Sites {
		if site.Name == r.Site.Name {
			a.last[a.question(n, r.Image)] = r
		}
	}
}

func (a *Asker) uploadOne(ctx context.Context, r Report) Report {
	w, _ := r.Site.wants(r.Image)
	a.Log("upload started", "site", r.Site.Name, "image", w.Name)
	started := a.Now()
	if err := a.send(ctx, r.Site, w); err != nil {
		a.Log("failed to upload", "site", r.Site.Name, "image", w.Name, "error", err)
		r.Err = fmt.Errorf("upload: %w", err)
		return r
	}
	a.Log("upload finished", "site", r.Site.Name, "image", w.Name, "duration", a.Now().Sub(started))
	return a.ask(ctx, r.Site, w, r)
}

func (a *Asker) send(ctx context.Context, site Site, w Wanted) error {
	to, ok := site.Cloud.(Uploader)
	if !ok {
		return errors.New("this kind of cloud takes no uploads: set upload to false")
	}
	f, _ := w.DiskFile()
	p, err := a.Files.Get(ctx, f)
	if err != nil {
		return err
	}
	return to.Upload(ctx, w, p)
}
