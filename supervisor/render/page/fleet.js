// The page of many jobs.
theme(document.getElementById('theme'));
document.documentElement.classList.add('on');
for (const table of document.querySelectorAll('table[data-sortable]')) sortable(table);
