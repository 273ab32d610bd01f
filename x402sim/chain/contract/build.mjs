// Compiles each contract here, such as Stablecoin.sol to Stablecoin.json, or with --check says
// whether that is up to date.
//
//     npm install --prefix tests/evm                                    # solc, OpenZeppelin, anvil
//     node x402sim/chain/contract/build.mjs tests/evm [--check]
//
// The argument is the directory whose node_modules has `solc` and `@openzeppelin/contracts`.
// The same packages and the same source always give the same file, byte for byte.

import { createHash } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { resolve } from 'node:path'

const NAMES = ['Stablecoin', 'SmartWallet', 'Multicall']
const SEVERAL = ['Permit2', '../../suite/facilitator/contract/Hostile'] // of these the code is enough
const SETTINGS = {
  evmVersion: 'cancun',
  metadata: { bytecodeHash: 'none' }, // a comment changes no bytecode
  optimizer: { enabled: true, runs: 200 },
}

const here = (name) => new URL(name, import.meta.url)
const [packages, ...options] = process.argv.slice(2)
if (!packages) throw new Error('which directory has the node_modules? e.g. tests/evm')
const require = createRequire(resolve(packages, 'package.json'))
const solc = require('solc')

function compile(name, source) {
  const wanted = ['abi', 'evm.bytecode.object', 'evm.deployedBytecode.object', 'storageLayout']
  const input = {
    language: 'Solidity',
    sources: { [`${name}.sol`]: { content: source } },
    settings: { ...SETTINGS, outputSelection: { [`${name}.sol`]: { '*': wanted } } },
  }
  const read = (path) => ({ contents: readFileSync(require.resolve(path), 'utf8') })
  const output = JSON.parse(solc.compile(JSON.stringify(input), { import: read }))
  const problems = (output.errors ?? []).map((error) => error.formattedMessage)
  if (problems.length) throw new Error(problems.join('\n'))
  return output.contracts[`${name}.sol`]
}

const hashed = (source) => `sha256:${createHash('sha256').update(source).digest('hex')}`

const signatures = (abi, kind) =>
  abi
    .filter(({ type }) => type === kind)
    .map(({ name, inputs }) => `${name}(${inputs.map(({ type }) => type)})`)

function artifact(name) {
  const source = readFileSync(here(`${name}.sol`), 'utf8')
  const compiled = compile(name, source)[name]
  return {
    contract: name,
    compiler: `solc ${solc.version()}`,
    settings: SETTINGS,
    openzeppelin: require('@openzeppelin/contracts/package.json').version,
    source: hashed(source),
    storage: Object.fromEntries(
      compiled.storageLayout.storage.map(({ label, slot }) => [label, Number(slot)]),
    ),
    functions: signatures(compiled.abi, 'function'),
    errors: signatures(compiled.abi, 'error'),
    creation: `0x${compiled.evm.bytecode.object}`,
    runtime: `0x${compiled.evm.deployedBytecode.object}`,
  }
}

function several(name) {
  const source = readFileSync(here(`${name}.sol`), 'utf8')
  const codes = Object.entries(compile(name.split('/').at(-1), source))
    .map(([name, { evm }]) => [name, evm.deployedBytecode.object])
    .filter(([, code]) => code)
  return {
    compiler: `solc ${solc.version()}`,
    settings: SETTINGS,
    source: hashed(source),
    runtime: Object.fromEntries(codes),
  }
}

for (const name of [...NAMES, ...SEVERAL]) {
  const made = SEVERAL.includes(name) ? several(name) : artifact(name)
  const text = `${JSON.stringify(made, null, 1)}\n`
  if (!options.includes('--check')) {
    writeFileSync(here(`${name}.json`), text)
  } else if (text !== readFileSync(here(`${name}.json`), 'utf8')) {
    console.error(`${name}.json is not what ${name}.sol compiles to: run this without --check`)
    process.exit(1)
  }
}
