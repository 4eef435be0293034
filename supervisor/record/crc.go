package record

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

const crcSize = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errCRC = errors.New("checksum does not match")

// seal puts the CRC-32C of key and value in front of the value: a value that
// a damaged tree gives out under another key is found too.
func seal(key, value []byte) []byte {
	b := make([]byte, crcSize, crcSize+len(value))
	sum := crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value)
	binary.BigEndian.PutUint32(b, sum)
	return append(b, value...)
}

// open checks and takes off what seal put in front.
func open(key, sealed []byte) ([]byte, error) {
	if len(sealed) < crcSize {
		return nil, errCRC
	}
	value := sealed[crcSize:]
	sum := crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value)
	if binary.BigEndian.Uint32(sealed) != sum {
		return nil, errCRC
	}
	return value, nil
}
