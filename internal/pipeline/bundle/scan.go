package bundle

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// Bounds of what one value in a header's JSON may be.
const (
	maxText  = 1024 // bytes of a text that is kept
	maxDepth = 32   // of values in each other
)

// scanner reads JSON once, from its beginning to its end, and keeps nothing that
// its caller did not ask for. What it costs therefore follows from what is kept
// and never from how the bytes are arranged: the caller checks every member of an
// array before it reads the next one.
type scanner struct {
	r     *bufio.Reader
	depth int
	lit   []byte            // of the text that was read last
	same  map[string]string // texts that occur often
}

func newScanner(r io.Reader) *scanner {
	return &scanner{r: bufio.NewReaderSize(r, 16<<10), same: map[string]string{}}
}

var errEndsEarly = errors.New("is not JSON: it ends early")

func unexpected(c byte, want string) error {
	return fmt.Errorf("is not JSON as expected: found %q, want %s", c, want)
}

// next is the next byte that is no white space.
func (s *scanner) next() (byte, error) {
	for {
		c, err := s.r.ReadByte()
		if err != nil {
			return 0, orEnd(err)
		}
		if c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			return c, nil
		}
	}
}

func orEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return errEndsEarly
	}
	return err
}

func (s *scanner) peek() (byte, error) {
	c, err := s.next()
	if err == nil {
		err = s.r.UnreadByte()
	}
	return c, err
}

func (s *scanner) expect(want byte) error {
	c, err := s.next()
	if err == nil && c != want {
		err = unexpected(c, strconv.QuoteRune(rune(want)))
	}
	return err
}

// null reads a null, if that is what comes next.
func (s *scanner) null() (bool, error) {
	if c, err := s.peek(); err != nil || c != 'n' {
		return false, err
	}
	return true, s.literal("null")
}

func (s *scanner) literal(want string) error {
	for i := range len(want) {
		if c, err := s.r.ReadByte(); err != nil || c != want[i] {
			return errors.Join(orEnd(err), errors.New("is not JSON: bad literal"))
		}
	}
	return nil
}

// end wants nothing but white space up to the end.
func (s *scanner) end() error {
	c, err := s.next()
	switch {
	case errors.Is(err, errEndsEarly):
		return nil
	case err != nil:
		return err
	}
	return unexpected(c, "the end")
}

// list reads what stands between two brackets; item reads one of it.
func (s *scanner) list(open, closed byte, item func() error) error {
	if err := s.expect(open); err != nil {
		return err
	}
	if s.depth++; s.depth > maxDepth {
		return fmt.Errorf("has values more than %d deep in each other", maxDepth)
	}
	defer func() { s.depth-- }()
	if c, err := s.peek(); err != nil || c == closed {
		_, _ = s.r.ReadByte() // what peek saw
		return err
	}
	for {
		if err := item(); err != nil {
			return err
		}
		c, err := s.next()
		if err != nil || c == closed {
			return err
		}
		if c != ',' {
			return unexpected(c, "a comma")
		}
	}
}

// array calls item for every member of an array, and stops at the one after most.
func (s *scanner) array(most int, what string, item func() error) error {
	if null, err := s.null(); null || err != nil {
		return err
	}
	n := 0
	return s.list('[', ']', func() error {
		if n++; n > most {
			return fmt.Errorf("lists more than %d %s", most, what)
		}
		return item()
	})
}

// members reads the members of an object by their names.
type members map[string]func() error

// object reads an object. Members that are not named are passed over; one that
// comes twice is refused, since readers differ in which of the two they take.
func (s *scanner) object(m members) error {
	if null, err := s.null(); null || err != nil {
		return err
	}
	done := make([]string, 0, len(m))
	return s.list('{', '}', func() error {
		name, err := s.name()
		if err != nil {
			return err
		}
		read := m[string(name)]
		if read == nil {
			return s.skip()
		}
		for _, d := range done {
			if d == string(name) {
				return fmt.Errorf("has the member %q twice", d)
			}
		}
		done = append(done, string(name))
		return read()
	})
}

// name of a member, up to and with the colon. It is valid until the next text.
func (s *scanner) name() ([]byte, error) {
	if err := s.raw(maxText); err != nil {
		return nil, err
	}
	return s.lit, s.expect(':')
}

// raw reads a text into lit; one of more than most bytes is refused.
func (s *scanner) raw(most int) error {
	if err := s.expect('"'); err != nil {
		return err
	}
	s.lit = append(s.lit[:0], '"')
	plain := true
	for {
		c, err := s.r.ReadByte()
		if err != nil {
			return orEnd(err)
		}
		if len(s.lit) > most {
			return fmt.Errorf("has a text of more than %d bytes", most)
		}
		s.lit = append(s.lit, c)
		switch {
		case c == '"':
			return s.unquote(plain)
		case c == '\\':
			plain = false
			if c, err = s.r.ReadByte(); err != nil {
				return orEnd(err)
			}
			s.lit = append(s.lit, c)
		case c < ' ' || c >= 0x80:
			plain = false
		}
	}
}

// unquote takes quotes and escapes away.
func (s *scanner) unquote(plain bool) error {
	if plain {
		s.lit = s.lit[1 : len(s.lit)-1]
		return nil
	}
	var text string
	if err := json.Unmarshal(s.lit, &text); err != nil {
		return fmt.Errorf("is not JSON: %w", err)
	}
	s.lit = append(s.lit[:0], text...)
	return nil
}

// text reads a string into to.
func (s *scanner) text(to *string) func() error {
	return func() error {
		if null, err := s.null(); null || err != nil {
			return err
		}
		if err := s.raw(maxText); err != nil {
			return err
		}
		if known, ok := s.same[string(s.lit)]; ok {
			*to = known
			return nil
		}
		*to = string(s.lit)
		return nil
	}
}

// often is text for what many members have in common: it is kept once.
func (s *scanner) often(to *string) func() error {
	read := s.text(to)
	return func() error {
		err := read()
		if err == nil && len(s.same) < 64 {
			s.same[*to] = *to
		}
		return err
	}
}

// number reads a whole number into to.
func (s *scanner) number(to *int64) func() error {
	return func() error {
		if null, err := s.null(); null || err != nil {
			return err
		}
		digits, err := s.digits()
		if err != nil {
			return err
		}
		n, err := strconv.ParseInt(string(digits), 10, 64)
		if err != nil || !json.Valid(digits) {
			return fmt.Errorf("has %.40q where a whole number of 64 bits belongs", digits)
		}
		*to = n
		return nil
	}
}

// digits reads what may be a number, of at most 64 bytes.
func (s *scanner) digits() ([]byte, error) {
	c, err := s.next()
	s.lit = s.lit[:0]
	for ; err == nil && partOfNumber(c); c, err = s.r.ReadByte() {
		if s.lit = append(s.lit, c); len(s.lit) > 64 {
			return nil, errors.New("has a number of more than 64 digits")
		}
	}
	if err != nil {
		return nil, orEnd(err)
	}
	return s.lit, s.r.UnreadByte()
}

func partOfNumber(c byte) bool {
	return c >= '0' && c <= '9' || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E'
}

// skip passes over a value and keeps nothing of it.
func (s *scanner) skip() error {
	c, err := s.peek()
	if err != nil {
		return err
	}
	switch c {
	case '{':
		return s.list('{', '}', s.skipMember)
	case '[':
		return s.list('[', ']', s.skip)
	case '"':
		return s.skipText()
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	}
	digits, err := s.digits()
	if err == nil && !json.Valid(digits) {
		err = unexpected(c, "a value")
	}
	return err
}

func (s *scanner) skipMember() error {
	if err := s.skipText(); err != nil {
		return err
	}
	if err := s.expect(':'); err != nil {
		return err
	}
	return s.skip()
}

func (s *scanner) skipText() error {
	if err := s.expect('"'); err != nil {
		return err
	}
	for {
		c, err := s.r.ReadByte()
		switch {
		case err != nil:
			return orEnd(err)
		case c == '"':
			return nil
		case c < ' ':
			return unexpected(c, "a text")
		case c == '\\':
			if _, err := s.r.ReadByte(); err != nil {
				return orEnd(err)
			}
		}
	}
}
