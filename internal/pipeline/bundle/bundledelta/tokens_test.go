package bundledelta

import (
	"bytes"
	"compress/flate"
	stdgzip "compress/gzip"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
)

// contents have what encoders pack in different ways.
func contents() map[string][]byte {
	r := rand.New(rand.NewPCG(3, 3))
	noise := make([]byte, 40_000)
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	var text, sparse []byte
	for len(text) < 120_000 {
		text = append(text, fmt.Sprintf("word%d of a text, %x ", r.IntN(300), r.IntN(1<<r.IntN(20)))...)
	}
	for len(sparse) < 40_000 {
		sparse = append(append(sparse, make([]byte, r.IntN(3000))...), noise[:r.IntN(400)]...)
	}
	return map[string][]byte{"nothing": {}, "a byte": []byte("x"), "noise": noise, "text": text, "sparse": sparse, "zeros": make([]byte, 140_000),
		"all": bytes.Join([][]byte{text, noise, text[50_000:70_000], sparse, noise[:30_000]}, nil)}
}

// packers are programs that write gzip.
func packers(t testing.TB) map[string]func(content []byte) []byte {
	all := map[string]func([]byte) []byte{}
	add := func(name string, newWriter func(w io.Writer) (io.WriteCloser, error)) {
		all[name] = func(content []byte) []byte {
			var out bytes.Buffer
			z, err := newWriter(&out)
			if err == nil {
				_, err = z.Write(content)
			}
			if err == nil {
				err = z.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
			return out.Bytes()
		}
	}
	for level := -2; level <= 9; level++ {
		add(fmt.Sprint("go ", level), func(w io.Writer) (io.WriteCloser, error) { return stdgzip.NewWriterLevel(w, level) })
		add(fmt.Sprint("klauspost ", level), func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriterLevel(w, level) })
	}
	all["go with a name"] = func(content []byte) []byte {
		var out bytes.Buffer
		z := stdgzip.NewWriter(&out)
		z.Name, z.Comment, z.Extra = "layer.tar", "of a test", []byte("extra")
		for len(content) > 0 { // empty blocks between the parts
			n := min(len(content), 9000)
			if _, err := z.Write(content[:n]); err != nil || z.Flush() != nil {
				t.Fatal(err)
			}
			content = content[n:]
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	all["two members"] = func(content []byte) []byte {
		half := len(content) / 2
		return append(all["go 6"](content[:half]), all["klauspost 1"](content[half:])...)
	}
	command := func(name, program string, args ...string) {
		if _, err := exec.LookPath(program); err != nil {
			return
		}
		all[name] = func(content []byte) []byte {
			c := exec.Command(program, args...)
			c.Stdin = bytes.NewReader(content)
			out, err := c.Output()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return out
		}
	}
	for _, level := range []string{"-1", "-6", "-9"} {
		command("GNU gzip "+level, "gzip", "-n", "-c", level)
	}
	command("pigz", "pigz", "-c")
	for strategy, level := range []int{6, 6, 6, 6, 9, 0} { // usual, filtered, codes only, runs, fixed codes; stored
		command(fmt.Sprintf("zlib %d %d", level, strategy), "python3", "-c", fmt.Sprintf("import sys,zlib\nz = zlib.compressobj(%d, 8, 31, 9, %d)\nsys.stdout.buffer.write(z.compress(sys.stdin.buffer.read()) + z.flush())", level, strategy%5))
	}
	return all
}

// takeApart returns the content, the tokens and the frames of a gzip stream.
func takeApart(packed []byte) (content, tokens, frames []byte, err error) {
	var c, t, f bytes.Buffer
	w := &frameWriter{w: &f}
	err = inflate(bytes.NewReader(packed), &c, &t, w)
	return c.Bytes(), t.Bytes(), f.Bytes(), errors.Join(err, w.err)
}

// putTogether packs content again, of which each write has some bytes.
func putTogether(content, tokens, frames []byte, write int) ([]byte, error) {
	var out bytes.Buffer
	r := newRepacker(&out, bytes.NewReader(tokens), bytes.NewReader(frames))
	for len(content) > 0 {
		n := min(len(content), write)
		if _, err := r.Write(content[:n]); err != nil {
			return out.Bytes(), err
		}
		content = content[n:]
	}
	err := r.Close()
	return out.Bytes(), err
}

// What any program packed is packed again to the same bytes.
func TestTokensOfAnyProgram(t *testing.T) {
	t.Parallel()
	all := contents()
	for program, pack := range packers(t) {
		foreign := !strings.HasPrefix(program, "go") && !strings.HasPrefix(program, "klauspost") // a process each time
		for name, content := range all {
			if foreign && name != "all" && name != "nothing" {
				continue
			}
			packed := pack(content)
			got, tokens, frames, err := takeApart(packed)
			if err != nil || !bytes.Equal(got, content) {
				t.Errorf("%s, %s: %d bytes of content, want %d: %v", program, name, len(got), len(content), err)
				continue
			}
			for _, write := range []int{bufferSize, 777} {
				if again, err := putTogether(content, tokens, frames, write); err != nil || !bytes.Equal(again, packed) {
					t.Errorf("%s, %s, by %d bytes: %d bytes, want %d: %v", program, name, write, len(again), len(packed), err)
				}
			}
		}
	}
}

// Readers may return any number of bytes at a time.
func TestInflateOfShortReads(t *testing.T) {
	t.Parallel()
	content := contents()["all"]
	packed := packers(t)["two members"](content)
	var got, tokens bytes.Buffer
	if err := inflate(&shortReader{packed}, &got, &tokens, nil); err != nil || !bytes.Equal(got.Bytes(), content) {
		t.Errorf("%d bytes, want %d: %v", got.Len(), len(content), err)
	}
	_, want, _, _ := takeApart(packed)
	if !bytes.Equal(tokens.Bytes(), want) {
		t.Error("other tokens")
	}
}

// shortReader returns one to thirteen bytes at a time.
type shortReader struct{ b []byte }

func (s *shortReader) Read(p []byte) (int, error) {
	if len(s.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), 1+len(s.b)%13)], s.b)
	s.b = s.b[n:]
	return n, nil
}

// A stream that is cut anywhere, or has a wrong bit, makes an error or other content, and nothing worse.
func TestInflateOfDamage(t *testing.T) {
	t.Parallel()
	content := contents()["all"][110_000:150_000]
	for _, program := range []string{"go 6", "go 0", "klauspost 1", "two members"} {
		packed := packers(t)[program](content)
		for at := 0; at < len(packed); at += 1 + at/30 {
			if program == "two members" {
				break
			}
			if _, _, _, err := takeApart(packed[:at]); err == nil {
				t.Errorf("%s: cut at byte %d: no error", program, at)
			}
		}
		for at := range 200 {
			bad := bytes.Clone(packed)
			bad[(at*len(bad)/200+at)%len(bad)] ^= 1 << (at % 8)
			got, tokens, frames, err := takeApart(bad)
			if err != nil {
				if !errors.Is(err, errDeflate) && !errors.Is(err, errNoRecipe) {
					t.Errorf("%s: %v", program, err)
				}
				continue
			}
			if _, err := putTogether(got, tokens, frames, bufferSize); err != nil && !errors.Is(err, errTokens) && !errors.Is(err, errFrame) {
				t.Errorf("%s: %v", program, err)
			}
		}
	}
}

// bitsOf are a gzip stream with one block of these bits, lowest first.
func bitsOf(bits string) []byte {
	var s bitString
	for _, b := range strings.ReplaceAll(bits, " ", "") {
		s.add(uint(b-'0'), 1)
	}
	return append(append([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0}, s.b...), make([]byte, 40)...)
}

func TestInflateRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		packed []byte
		want   string
	}{
		"another format":              {[]byte("#! a script, no gzip"), "not a header of gzip"},
		"a header without end":        {append([]byte{0x1f, 0x8b, 8, gzipHasName}, bytes.Repeat([]byte("x"), 9000)...), "gzip header too long"},
		"no bytes":                    {nil, "gzip header too long or cut"},
		"a header alone":              {bitsOf("")[:10], "ends early"},
		"a block of the fourth kind":  {bitsOf("1 11"), "unknown kind"},
		"a stored block of two sizes": {bitsOf("1 00 00000 1111000000000000 0000000000000000"), "two lengths"},
		"287 literals":                {bitsOf("1 01 01111 00000 0000"), "literals and"},
		"31 distances":                {bitsOf("1 01 00000 01111 0000"), "distances"},
		"codes of lengths, too many":  {bitsOf("1 01 00000 00000 0000 100 100 100 100"), "more codes than bits allow"},
		"no codes of lengths":         {bitsOf("1 01 00000 00000 0000 000 000 000 000"), "no such code"},
		"a repeat of nothing":         {bitsOf("1 01 00000 00000 0000 100 000 000 100 1 00"), "repeat beyond"},
		"a match before the content":  {bitsOf("1 10 0000001 00000"), "a match of 3 bytes, 1 before it, after 0"},
		"a length that is none":       {bitsOf("1 10 00110000 11000110"), "a match of"},
		"a distance that is none":     {bitsOf("1 10 00110000 0000001 11110"), "a match of"},
	} {
		if _, _, _, err := takeApart(c.packed); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// framesOf writes frames of blocks with fixed codes: of each, how much content it has.
func framesOf(content ...int64) []byte {
	var out bytes.Buffer
	for i, n := range content {
		f := &frameWriter{w: &out}
		f.header.add(2, 3)
		if i == len(content)-1 {
			f.header = bitString{}
			f.header.add(3, 3)
		}
		f.block(n)
	}
	return out.Bytes()
}

func TestRepackerRefuses(t *testing.T) {
	t.Parallel()
	content := []byte("0123456789abcdef")
	good := []byte{6, 7, 1, 0} // six literals, ten bytes of a match
	if _, err := putTogether(content, good, framesOf(16), 16); err != nil {
		t.Fatal(err)
	}
	stored := []byte{frameBlock, 16, 3, 1}
	var narrow bytes.Buffer // codes for bytes of zero only
	if err := func() error {
		z, err := flate.NewWriter(&narrow, flate.HuffmanOnly)
		if err == nil {
			_, err = z.Write(make([]byte, 3000))
		}
		return errors.Join(err, z.Close())
	}(); err != nil {
		t.Fatal(err)
	}
	_, _, onlyZeros, err := takeApart(append(append([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0}, narrow.Bytes()...), make([]byte, 8)...))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		tokens, frames []byte
		want           string
	}{
		"an empty record":              {[]byte{0, 0, 0, 0}, framesOf(16), "an empty record"},
		"no records":                   {nil, framesOf(16), "end early"},
		"half a record":                {good[:2], framesOf(16), "end early"},
		"more records":                 {append(bytes.Clone(good), 1, 0, 0, 0), framesOf(16), "more of them than content"},
		"a match that goes on":         {[]byte{6, 8, 1, 0}, framesOf(16), "no room"},
		"literals that go on":          {[]byte{6, 6, 1, 0, 2, 0, 0, 0}, framesOf(16), "more of them than content"},
		"a match over two blocks":      {good, framesOf(9, 7), "no room"},
		"a distance of 32769":          {[]byte{6, 7, 1, 0x80}, framesOf(16), "a distance of"},
		"a match in a stored block":    {good, stored, "no room"},
		"bytes without a code":         {[]byte{16, 0, 0, 0}, onlyZeros, "has no code"},
		"a match without a code":       {[]byte{0, 7, 1, 0}, onlyZeros, "has no code"},
		"no frames":                    {good, nil, "more content than blocks"},
		"a block that is larger":       {[]byte{16, 0, 0, 0}, framesOf(17), "more blocks than content"},
		"one more block":               {good, framesOf(16, 1), "more blocks than content"},
		"a frame of an unknown kind":   {good, []byte{7}, "kind 7"},
		"a raw frame of no bytes":      {good, []byte{frameRaw, 0}, "0 is not from 1"},
		"a raw frame of many":          {good, []byte{frameRaw, 0xff, 0xff, 0xff, 0xff, 0x0f}, "is not from 1"},
		"a raw frame that is cut":      {good, []byte{frameRaw, 9, 1}, "ends early"},
		"a block without a header":     {good, []byte{frameBlock, 16, 0}, "0 is not from 3"},
		"a header of many bits":        {good, []byte{frameBlock, 16, 0xff, 0xff, 0x0f}, "is not from 3"},
		"a header with bits more":      {good, []byte{frameBlock, 16, 4, 3}, "too long"},
		"a header that is cut":         {good, []byte{frameBlock, 16, 20, 5, 0, 0}, "header of a block ends early"},
		"a block of the fourth kind":   {good, []byte{frameBlock, 16, 3, 7}, "unknown kind"},
		"a stored block of 65536":      {good, []byte{frameBlock, 0x80, 0x80, 4, 3, 1}, "a stored block of"},
		"a number of more than 64 bit": {good, append([]byte{frameBlock}, bytes.Repeat([]byte{0xff}, 12)...), "overflows"},
	} {
		for _, write := range []int{16, 1} {
			if _, err := putTogether(content, c.tokens, c.frames, write); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", name, err, c.want)
			}
		}
	}
}

// FuzzInflate: what both programs unpack is the same content, and packing it again makes a stream of the same content.
func FuzzInflate(f *testing.F) {
	for name, pack := range packers(f) {
		if strings.HasPrefix(name, "go") || strings.HasPrefix(name, "two") {
			f.Add(pack(contents()["sparse"][:3000]))
		}
	}
	f.Fuzz(func(t *testing.T, packed []byte) {
		content, tokens, frames, err := takeApart(packed)
		if err != nil {
			return
		}
		again, err := putTogether(content, tokens, frames, bufferSize)
		if err != nil {
			t.Fatal(err)
		}
		if same, _, _, err := takeApart(again); err != nil || !bytes.Equal(same, content) {
			t.Fatalf("packed again: %v", err)
		}
		z, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			return
		}
		if want, err := io.ReadAll(z); err == nil && !bytes.Equal(want, content) {
			t.Fatalf("%d bytes, want %d", len(content), len(want))
		}
	})
}

// FuzzRepacker: hostile tokens and frames make an error or bytes, in bounded time.
func FuzzRepacker(f *testing.F) {
	for _, program := range []string{"go 6", "klauspost 1", "two members"} {
		content, tokens, frames, err := takeApart(packers(f)[program](contents()["sparse"][:3000]))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content, tokens, frames, uint16(100))
	}
	f.Fuzz(func(t *testing.T, content, tokens, frames []byte, write uint16) {
		got, err := putTogether(content, tokens, frames, 1+int(write))
		if most := 7*len(content) + len(frames)*(1<<11) + 64; len(got) > most {
			t.Fatalf("%d bytes of %d, %v", len(got), most, err)
		}
	})
}
