package record

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"sync"
)

const crcSize = 4

// castagnoli is made when it is needed: a process that records nothing, as the
// holder, is not to pay for it at its start.
var castagnoli = sync.OnceValue(func() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) })

var errCRC = errors.New("checksum does not match")

// seal puts the CRC-32C of key and value in front of the value, so that a damaged tree
// which returns a value for another key is found out.
func seal(key, value []byte) []byte {
	b := make([]byte, crcSize, crcSize+len(value))
	binary.BigEndian.PutUint32(b, checksum(key, value))
	return append(b, value...)
}

// Unseal checks a stored value and takes off its checksum.
func Unseal(key, sealed []byte) ([]byte, error) {
	if len(sealed) < crcSize {
		return nil, errCRC
	}
	value := sealed[crcSize:]
	if binary.BigEndian.Uint32(sealed) != checksum(key, value) {
		return nil, errCRC
	}
	return value, nil
}

func checksum(key, value []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli()), castagnoli(), value)
}
