package store

import (
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"strings"
)

// An ID identifies a job of a store for ever. 0 is none.
type ID uint64

var idEncoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").
	WithPadding(base32.NoPadding)

// String returns the ID as 13 digits and letters that read well aloud (Crockford's alphabet).
func (id ID) String() string {
	return idEncoding.EncodeToString(binary.BigEndian.AppendUint64(nil, uint64(id)))
}

// ParseID is the inverse of ID.String. Case does not matter.
func ParseID(s string) (ID, error) {
	b, err := idEncoding.DecodeString(strings.ToLower(s))
	if err != nil || len(b) != 8 {
		return 0, fmt.Errorf("jobqueue: %q is not the id of a job", s)
	}
	return ID(binary.BigEndian.Uint64(b)), nil
}

// MarshalText implements encoding.TextMarshaler.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *ID) UnmarshalText(text []byte) (err error) {
	*id, err = ParseID(string(text))
	return err
}
