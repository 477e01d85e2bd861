"""What a question asks to be done: count, list, compare, summarise, all, or one local fact."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.retrieval.tasks import AskedTask, Task, read

COUNT, LIST, COMPARE, SUMMARISE, ALL, LOCAL = (
    Task.COUNT,
    Task.LIST,
    Task.COMPARE,
    Task.SUMMARISE,
    Task.ALL,
    Task.LOCAL,
)
Row = tuple[
    str, Task, str
]  # question, task, about (of a count or list; "not ..." when the property is asked for absent)

#: The rules were written looking at these.
TUNED: list[Row] = [
    ("How many contracts have an exclusivity clause?", COUNT, "exclusivity clause"),
    ("In how many of the agreements is there a cap on liability?", COUNT, "cap on liability"),
    ("How many of these documents mention Harrow Packaging?", COUNT, "Harrow Packaging"),
    ("Can you tell me how many leases expire in 2026?", COUNT, "expire in 2026"),
    ("How many supply agreements contain a most favoured nation clause?", COUNT, "most favoured nation clause"),
    ("How many invoices are over 1,000 euros?", COUNT, "over 1,000 euros"),
    ("How many contracts do not have a limitation of liability?", COUNT, "not limitation of liability"),
    ("How many NDAs are there?", COUNT, "NDAs"),
    ("How many documents are there in the collection?", COUNT, ""),
    ("Of the contracts, how many allow assignment without consent?", COUNT, "allow assignment without consent"),
    ("Which contracts are governed by the laws of New York?", LIST, "governed by the laws of New York"),
    ("List all agreements that allow termination for convenience.", LIST, "allow termination for convenience"),
    ("Which contract mentions a non-compete?", LIST, "non-compete"),
    ("In which documents is Annika Vogel named?", LIST, "Annika Vogel named"),
    ("Show me the invoices from Calder Ltd.", LIST, "from Calder Ltd"),
    ("Which of the leases have a break clause?", LIST, "break clause"),
    ("Name every policy that covers flooding", LIST, "covers flooding"),
    ("Which contracts lack a confidentiality clause?", LIST, "not confidentiality clause"),
    ("How many days of notice must be given?", LOCAL, ""),
    ("How many members does the board have?", LOCAL, ""),
    ("Which law governs the agreement with Harrow?", LOCAL, ""),
    ("Which documents must the tenant provide?", LOCAL, ""),
    ("How many copies of the contract are signed?", LOCAL, ""),
    ("Which contract clause covers late payment?", LOCAL, ""),
    ("Who owns all intellectual property created under the contract?", LOCAL, ""),
    ("Is the supplier liable at all?", LOCAL, ""),
    ("Is the rent paid every month?", LOCAL, ""),
    ("When does the service resume?", LOCAL, ""),
    ("What does the executive summary say about revenue?", LOCAL, ""),
    ("Who pays the difference between the estimate and the final price?", LOCAL, ""),
    ("What was the increase compared to 2022?", LOCAL, ""),
    ("What is the price of the all-inclusive plan?", LOCAL, ""),
    ("What is the overall budget?", LOCAL, ""),
    ("What are the two segments in which Acme reports its results?", LOCAL, ""),
    ("What fee is charged for each document?", LOCAL, ""),
    ("Compare the notice periods of the two leases.", COMPARE, ""),
    ("What are the differences between the 2022 and the 2023 policy?", COMPARE, ""),
    ("Which contract has the longest term?", COMPARE, ""),
    ("How do the two agreements differ?", COMPARE, ""),
    ("Lease A versus lease B: which notice period applies?", COMPARE, ""),
    ("Summarise the agreement.", SUMMARISE, ""),
    ("Give me an overview of these documents.", SUMMARISE, ""),
    ("Can you write a summary of the report?", SUMMARISE, ""),
    ("What is the notice period in each contract?", ALL, ""),
    ("What is the notice period for each contract?", ALL, ""),
    ("Do all contracts have a notice period?", ALL, ""),
    ("List every obligation of the supplier.", ALL, ""),
    ("What are all the payment deadlines?", ALL, ""),
    ("¿Cuántos contratos tienen una cláusula de exclusividad?", COUNT, "cláusula de exclusividad"),
    ("¿En cuántos de los contratos se prohíbe la cesión?", COUNT, "se prohíbe la cesión"),
    ("cuantas facturas superan los 500 euros", COUNT, "superan los 500 euros"),
    ("¿Cuántos documentos no mencionan el IVA?", COUNT, "not IVA"),
    ("¿Qué contratos se rigen por la ley de Nueva York?", LIST, "se rigen por la ley de Nueva York"),
    ("Enumera los documentos que mencionan a Harrow.", LIST, "Harrow"),
    ("¿En qué contrato aparece Annika Vogel?", LIST, "Annika Vogel"),
    ("¿Cuántos días de preaviso hay que dar?", LOCAL, ""),
    ("¿Qué ley rige el contrato?", LOCAL, ""),
    ("¿Qué documentos hay que presentar?", LOCAL, ""),
    ("¿Cuántos socios tiene la cooperativa?", LOCAL, ""),
    ("¿Quién paga todos los gastos?", LOCAL, ""),
    ("¿Se paga la renta todos los meses?", LOCAL, ""),
    ("Compara las dos pólizas.", COMPARE, ""),
    ("¿Qué diferencias hay entre el contrato de 2022 y el de 2023?", COMPARE, ""),
    ("¿Qué contrato tiene la duración más larga?", COMPARE, ""),
    ("Resume el contrato en cinco frases.", SUMMARISE, ""),
    ("Hazme un resumen de los documentos.", SUMMARISE, ""),
    ("¿Cuál es el plazo de preaviso en cada contrato?", ALL, ""),
    ("Dame todas las fechas de vencimiento.", ALL, ""),
    ("Quants contractes tenen una clàusula d'exclusivitat?", COUNT, "clàusula d'exclusivitat"),
    ("En quants dels contractes hi ha un límit de responsabilitat?", COUNT, "límit de responsabilitat"),
    ("Quins contractes es regeixen per la llei andorrana?", LIST, "es regeixen per la llei andorrana"),
    ("Llista els documents que esmenten Harrow.", LIST, "Harrow"),
    ("Quins contractes no tenen penalització?", LIST, "not penalització"),
    ("Quants dies de vacances tenim?", LOCAL, ""),
    ("Quins documents cal aportar?", LOCAL, ""),
    ("Quina llei regeix el contracte?", LOCAL, ""),
    ("Es paga cada mes?", LOCAL, ""),
    ("Compara els dos lloguers.", COMPARE, ""),
    ("Resumeix la llei.", SUMMARISE, ""),
    ("Quin és el termini a cada contracte?", ALL, ""),
    ("Tots els contractes tenen preavís?", ALL, ""),
]

#: Written before the rules and run once when those above were right: 81 of 83 tasks, 80 with what is asked about.
HELD_OUT: list[Row] = [
    ("How many of our agreements include a non-solicitation clause?", COUNT, "non-solicitation clause"),
    ("How many contracts were signed before 2020?", COUNT, "signed before 2020"),
    ("Please count the invoices that mention VAT.", COUNT, "VAT"),
    (
        "In how many contracts can the supplier terminate without cause?",
        COUNT,
        "can the supplier terminate without cause",
    ),
    ("What number of leases contain a rent review?", COUNT, "rent review"),
    ("how many emails refer to the merger", COUNT, "merger"),
    ("Among the reports, how many deal with safety?", COUNT, "safety"),
    ("How many agreements have no termination fee?", COUNT, "not termination fee"),
    ("How many letters did Calder send to the landlord?", COUNT, "Calder send to the landlord"),
    (
        "Which agreements name Catalonia as the place of jurisdiction?",
        LIST,
        "name Catalonia as the place of jurisdiction",
    ),
    ("Which agreement was signed by Mr Okafor?", LIST, "signed by Mr Okafor"),
    ("What contracts include a penalty for late delivery?", LIST, "penalty for late delivery"),
    ("Find all documents that talk about asbestos.", LIST, "asbestos"),
    ("Give me a list of the contracts with automatic renewal.", LIST, "automatic renewal"),
    ("For which leases is the deposit two months' rent?", LIST, "deposit two months' rent"),
    ("Which policies don't cover theft?", LIST, "don't cover theft"),
    ("Which amendments change the price?", LIST, "change the price"),
    ("How many employees work under the contract?", LOCAL, ""),
    ("How many hours a week are agreed in the employment agreement?", LOCAL, ""),
    ("How many pages does the report have?", LOCAL, ""),
    ("Which reports must the supplier deliver every quarter?", LOCAL, ""),
    ("What documents do I need to register the car?", LOCAL, ""),
    ("Which laws apply to this agreement?", LOCAL, ""),
    ("Which party signs the contract first?", LOCAL, ""),
    ("Who approves every invoice above 10,000 euros?", LOCAL, ""),
    ("What happens if all else fails?", LOCAL, ""),
    ("Above all, what is the deposit?", LOCAL, ""),
    ("Does the tenant pay for each repair?", LOCAL, ""),
    ("Where is the summary of charges sent?", LOCAL, ""),
    ("Is the file format different from PDF?", LOCAL, ""),
    ("After all, who is the guarantor?", LOCAL, ""),
    ("Must all documents be returned on termination?", LOCAL, ""),
    ("How does the warranty in the Harrow contract compare with the one in the Calder contract?", COMPARE, ""),
    ("Is there any difference between the two termination clauses?", COMPARE, ""),
    ("Do the two policies contradict each other on sick leave?", COMPARE, ""),
    ("Which lease has the lowest rent?", COMPARE, ""),
    ("Old policy vs new policy on travel", COMPARE, ""),
    ("Summarize everything you know about the tenant's duties.", SUMMARISE, ""),
    ("What are these documents about?", SUMMARISE, ""),
    ("I need a short summary of the lease", SUMMARISE, ""),
    ("Sum up the main obligations.", SUMMARISE, ""),
    ("Who signed each of the agreements?", ALL, ""),
    ("Identify all risks for the buyer.", ALL, ""),
    ("What is the governing law across all contracts?", ALL, ""),
    ("Find every mention of Annika Vogel.", ALL, ""),
    ("¿Cuántos de los acuerdos incluyen una penalización por retraso?", COUNT, "penalización por retraso"),
    ("Quiero saber cuántos contratos vencen en 2025", COUNT, "vencen en 2025"),
    ("¿Cuántas pólizas hay sin franquicia?", COUNT, "not franquicia"),
    ("¿Cuáles de los contratos permiten el subarriendo?", LIST, "permiten el subarriendo"),
    ("Dime qué facturas están pendientes de pago.", LIST, "pendientes de pago"),
    ("que contratos tienen fianza", LIST, "fianza"),
    ("Lista todos los informes en los que se menciona el amianto.", LIST, "amianto"),
    ("¿Qué documentos necesito para empadronarme?", LOCAL, ""),
    ("¿Cuántas copias del contrato se firman?", LOCAL, ""),
    ("¿Cuántas cartas certificadas debe enviar el arrendador?", LOCAL, ""),
    ("¿Qué ley se aplica al contrato?", LOCAL, ""),
    ("¿Es obligatorio asistir cada día?", LOCAL, ""),
    ("Ante todo, ¿quién es el avalista?", LOCAL, ""),
    ("¿Quién firma el acta de cada reunión?", LOCAL, ""),
    ("¿En qué se diferencian las dos leyes?", COMPARE, ""),
    ("Comparación entre el convenio de 2021 y el de 2024", COMPARE, ""),
    ("¿Cuál de los contratos tiene el precio más alto?", COMPARE, ""),
    ("Resumen de la ley de arrendamientos", SUMMARISE, ""),
    ("¿De qué tratan estos documentos?", SUMMARISE, ""),
    ("¿Tienen todos los contratos una cláusula de confidencialidad?", ALL, ""),
    ("Busca todas las menciones a la garantía.", ALL, ""),
    ("Quantes factures superen els mil euros?", COUNT, "superen els mil euros"),
    ("En quants contractes apareix Harrow?", COUNT, "Harrow"),
    ("Dels acords, quants preveuen l'arbitratge?", COUNT, "arbitratge"),
    ("Quants contractes hi ha sense clàusula de confidencialitat?", COUNT, "not clàusula de confidencialitat"),
    ("Quin contracte permet el subarrendament?", LIST, "permet el subarrendament"),
    ("Enumera les pòlisses que cobreixen el robatori.", LIST, "cobreixen el robatori"),
    ("Quines lleis parlen de la caça?", LIST, "caça"),
    ("Quins documents necessito per empadronar-me?", LOCAL, ""),
    ("Quants membres té el consell?", LOCAL, ""),
    ("Quina llei s'aplica al contracte?", LOCAL, ""),
    ("Quantes còpies de l'acord se signen?", LOCAL, ""),
    ("Qui paga totes les despeses?", LOCAL, ""),
    ("Quines diferències hi ha entre els dos convenis?", COMPARE, ""),
    ("En què es diferencien les dues pòlisses?", COMPARE, ""),
    ("Fes-me un resum dels documents.", SUMMARISE, ""),
    ("Quina és la durada de cadascun dels contractes?", ALL, ""),
    ("Digues totes les dates de venciment.", ALL, ""),
]

#: Written after the rules worked for the others, to find what they miss; 67 of 75 were right at first sight. None: any
#: wording will do.
SECOND: list[tuple[str, Task, str | None]] = [
    ("how many of the contracts have been signed by Ms Duran?", COUNT, "signed by Ms Duran"),
    ("How many vendor contracts renew automatically?", COUNT, "renew automatically"),
    ("I'd like to know how many policies exclude war risks.", COUNT, "exclude war risks"),
    ("How many reports are dated 2023?", COUNT, "dated 2023"),
    ("How many of the documents in this folder mention asbestos?", COUNT, "asbestos"),
    ("How many contracts with Harrow include a penalty?", COUNT, None),
    ("In how many leases does the tenant pay the property tax?", COUNT, "tenant pay the property tax"),
    ("How many agreements don't mention data protection?", COUNT, "not data protection"),
    ("Which agreements can be assigned freely?", LIST, "can be assigned freely"),
    ("Which documents are written in Catalan?", LIST, "written in Catalan"),
    ("List the invoices issued in March 2024.", LIST, "issued in March 2024"),
    (
        "Which employment contracts contain a non-compete and a confidentiality clause?",
        LIST,
        "non-compete and a confidentiality clause",
    ),
    ("Under which contracts is Harrow liable for delays?", LIST, "Harrow liable for delays"),
    ("Which NDA has no term?", LIST, "not term"),
    ("Find contracts where the liability is unlimited.", LIST, "liability is unlimited"),
    ("Which lease ends first?", COMPARE, None),
    ("Which of the two offers is better, Calder's or Harrow's?", LOCAL, None),
    ("What's the difference between the gross and the net salary?", COMPARE, None),
    ("Which country's law applies?", LOCAL, None),
    ("How many people signed the agreement?", LOCAL, None),
    ("How many weeks before the contract ends must notice be given?", LOCAL, None),
    ("What files does the update replace?", LIST, None),
    ("Who keeps the files of former employees?", LOCAL, None),
    ("Are all employees insured?", LOCAL, None),
    ("Is every director paid the same?", LOCAL, None),
    ("All in all, is the supplier liable?", LOCAL, None),
    ("What is each party's share?", LOCAL, None),
    ("In what documents is the guarantee mentioned?", LIST, "guarantee mentioned"),
    ("Tell me which invoices are unpaid.", LIST, "unpaid"),
    ("What does the policy say about remote work?", LOCAL, None),
    ("What documents are attached to the contract?", LOCAL, None),
    ("Give me every deadline in the lease.", ALL, None),
    ("Extract all amounts above 10,000 euros.", ALL, None),
    ("Does every contract name a data protection officer?", ALL, None),
    ("Provide a concise overview of the supplier's duties", SUMMARISE, None),
    ("TL;DR of the lease please", SUMMARISE, None),
    ("Contrast the two leases.", COMPARE, None),
    ("¿Cuántos contratos de alquiler incluyen garaje?", COUNT, None),
    ("¿Cuántas de las facturas llevan recargo?", COUNT, "llevan recargo"),
    ("¿Cuántos informes hay?", COUNT, "informes"),
    ("¿En cuántos documentos se cita a la señora Vogel?", COUNT, None),
    ("¿Cuántos acuerdos firmó Harrow en 2023?", COUNT, "firmó Harrow en 2023"),
    ("¿Cuántas horas semanales fija el convenio?", LOCAL, None),
    ("¿Cuántos meses dura el contrato?", LOCAL, None),
    ("¿Qué pólizas cubren el robo?", LIST, "cubren el robo"),
    ("¿Qué facturas no se han pagado?", LIST, "no se han pagado"),
    ("Indica los contratos que vencen este año.", LIST, "vencen este año"),
    ("¿En qué documentos figura la dirección de Harrow?", LIST, "dirección de Harrow"),
    ("¿Qué contrato carece de fecha?", LIST, "not fecha"),
    ("¿Qué norma regula los horarios?", LIST, None),
    ("¿Qué facturas debo guardar y cuánto tiempo?", LOCAL, None),
    ("¿Quién firma el contrato y todos los anexos?", LOCAL, None),
    ("¿Cada cuánto se revisa la renta?", LOCAL, None),
    ("¿Cada contrato tiene un anexo?", ALL, None),
    ("Haz un resumen del convenio.", SUMMARISE, None),
    ("¿Puedes resumir la ley?", SUMMARISE, None),
    ("¿Qué contrato es más barato?", COMPARE, None),
    ("Muéstrame las diferencias entre ambas pólizas", COMPARE, None),
    ("Quants convenis regulen el teletreball?", COUNT, "regulen el teletreball"),
    ("Quantes lleis hi ha sobre caça?", COUNT, "sobre caça"),
    ("Quants d'aquests documents parlen del pressupost?", COUNT, "pressupost"),
    ("En quins contractes s'esmenta el senyor Puig?", LIST, "senyor Puig"),
    ("Digues-me quines factures són de Calder.", LIST, "de Calder"),
    ("Quins acords no preveuen pròrroga?", LIST, "not pròrroga"),
    ("Quina llei es va aprovar el 2019?", LIST, None),
    ("Quants anys dura el contracte?", LOCAL, None),
    ("Quan venç cada termini?", LOCAL, None),
    ("Quins documents s'han d'adjuntar a la sol·licitud?", LOCAL, None),
    ("El mes de juny es paga doble?", LOCAL, None),
    ("Quin contracte té el preu més alt?", COMPARE, None),
    ("Compareu els dos convenis", COMPARE, None),
    ("Pots resumir-me l'acord?", SUMMARISE, None),
    ("Tots els empleats tenen vacances?", LOCAL, None),
    ("Fes una llista de tots els terminis.", ALL, None),
    ("Quins són els punts clau de l'acord?", SUMMARISE, None),
]


def wording(asked: AskedTask) -> str:
    return f"not {asked.about}" if asked.negated else asked.about


@pytest.mark.parametrize(("question", "task", "about"), TUNED)
def test_task_and_what_is_asked_about(question: str, task: Task, about: str) -> None:
    asked = read(question)
    assert asked.task is task
    assert wording(asked) == about
    assert (asked.cue == "") is (task is LOCAL)


@pytest.mark.parametrize("rows", [HELD_OUT, SECOND], ids=["held_out", "second"])
def test_nearly_all_questions_that_the_rules_were_not_written_for(rows: list[tuple[str, Task, str | None]]) -> None:
    wrong = [question for question, task, _ in rows if read(question).task is not task]
    assert len(wrong) <= 0.05 * len(rows), wrong
    reworded = [
        question
        for question, task, about in rows
        if about is not None and task in {COUNT, LIST} and wording(read(question)) != about
    ]
    assert len(reworded) <= 0.05 * len(rows), reworded


def test_every_language_has_every_task() -> None:
    assert len(TUNED) + len(HELD_OUT) + len(SECOND) >= 120
    assert {task for _, task, _ in HELD_OUT} == set(Task)


@pytest.mark.parametrize(
    ("question", "counted", "cue"),
    [
        ("How many supply agreements contain a cap?", "supply agreements", "How many supply agreements"),
        ("¿Cuántos contratos mercantiles tienen fianza?", "contratos mercantiles", "Cuántos contratos"),
        ("Quants contractes menors inclouen fiança?", "contractes menors", "Quants contractes"),
        ("Which contract has the longest term?", "", "Which contract … the longest"),
        ("How does the notice period of the first lease differ from the other?", "", "How does … differ"),
        ("Summarise all leases", "", "Summarise"),
    ],
)
def test_the_noun_and_the_words_that_decided(question: str, counted: str, cue: str) -> None:
    asked = read(question)
    assert asked.counted == counted
    assert asked.cue == cue


@pytest.mark.parametrize(
    ("question", "about"),
    [
        ("We have 12 suppliers. How many contracts have a cap? Answer briefly.", "cap"),
        ("Could you please tell me which contracts have a cap?", "cap"),
        ("According to the annexes, how many contracts have a cap?", "cap, According to the annexes"),
        ("Of the contracts signed in 2023, how many have a cap?", "cap, signed in 2023"),
        ("How many contracts have a cap in this collection?", "cap"),
        ("How many signed contracts are there?", "signed contracts"),
        ("HOW MANY CONTRACTS HAVE A CAP", "CAP"),
        ("How many contracts have  a\n cap ?", "cap"),
        ("How many contracts mention Harrow’s guarantee?", "Harrow's guarantee"),
        ("Cua\u0301ntos contratos tienen un li\u0301mite?", "límite"),  # accents as marks of their own
    ],
)
def test_only_the_counting_words_are_taken_off(question: str, about: str) -> None:
    assert read(question).about == about


def test_a_question_for_what_documents_lack_is_told_from_one_for_what_they_forbid() -> None:
    lacking = read("Which contracts do not have an assignment clause?")
    forbidding = read("Which contracts do not allow assignment?")
    assert (lacking.about, lacking.negated) == ("assignment clause", True)
    assert (forbidding.about, forbidding.negated) == ("do not allow assignment", False)


@given(st.text(max_size=200))
def test_reads_anything(question: str) -> None:
    asked = read(question)
    assert asked.task in {COUNT, LIST} or (asked.about, asked.counted, asked.negated) == ("", "", False)


@given(st.sampled_from([row[0] for row in TUNED]), st.sampled_from([" ", "  ", "\n", "¿ "]))
def test_white_space_around_changes_nothing(question: str, space: str) -> None:
    assert read(f"{space}{question}{space}") == read(question)
