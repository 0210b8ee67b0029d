const fs = require("fs");
process.chdir(process.argv[2]);
fs.writeFileSync("a", Array.from({ length: 5000 }, (_, i) => `line ${i}\n`).join(""));
fs.appendFileSync("a", "appended\n");
console.log(fs.statSync("a").size, fs.lstatSync("a").size);
fs.copyFileSync("a", "b");
const fd = fs.openSync("b", "r+");
fs.writeSync(fd, "changed", 4093);
fs.ftruncateSync(fd, 10001);
fs.closeSync(fd);
fs.renameSync("b", "c");
(async () => {
  const bytes = await fs.promises.readFile("c");
  const stat = await fs.promises.stat("c");
  console.log(stat.size, JSON.stringify(bytes.toString("utf8", 4090, 4105)));
  console.log(fs.readdirSync(".").sort().join(","));
})();
